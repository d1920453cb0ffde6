//! The templates of `graphrun init`: one table, from which the help, the completions, the list of templates and the page
//! of the documentation are made. To add one, add an entry.

use clap::{ValueEnum, builder::PossibleValue};

/// The pattern of the templates that are whole systems. It is no alias, because several have it.
const TEAM: &str = "team";

/// A workflow to start from, with its files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    /// Its name, which is also that of its workflow.
    pub(super) name: &'static str,
    /// The pattern that it shows, in the form of an argument.
    pub(super) pattern: &'static str,
    /// Its purpose, as the end of a sentence in a list.
    pub(super) about: &'static str,
    /// Its files, each with its path and content.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// The next commands in their usual order, each with a short description.
    pub(super) commands: &'static [(&'static str, &'static str)],
}

/// The files of a template: those of a folder of templates, or those of `graphs` with their prompts, and with a recording and
/// the small repository that its agents work on.
macro_rules! files {
    ($template:literal: $($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../graphs/templates/", $template, "/", $path)))),+]
    };
    ([$($path:literal),+ $(,)?], $prompts:literal: $($prompt:literal),+ $(,)?) => {
        &[
            $(($path, include_str!(concat!("../../../../graphs/", $path))),)+
            $((
                concat!("prompts/", $prompts, "/", $prompt),
                include_str!(concat!("../../../../prompts/", $prompts, "/", $prompt)),
            )),+
        ]
    };
    (
        [$($path:literal),+ $(,)?], $prompts:literal: [$($prompt:literal),+ $(,)?],
        $recording:literal, $example:literal: $($file:literal),+ $(,)?
    ) => {
        &[
            $(($path, include_str!(concat!("../../../../graphs/", $path))),)+
            $((
                concat!("prompts/", $prompts, "/", $prompt),
                include_str!(concat!("../../../../prompts/", $prompts, "/", $prompt)),
            ),)+
            (
                "recording.jsonl",
                include_str!(concat!("../../../../tests/recordings/", $recording)),
            ),
            $((
                concat!("example/", $file),
                include_str!(concat!("../../../../tests/recordings/", $example, "/", $file)),
            )),+
        ]
    };
}

const RECORDED: &str = "a run with recorded answers, without a key";
const CASES: &str = "its test cases, without a model";
const YOUR_MODELS: &str = "a run on your repository, with your models";
/// The first command of a template with the folder `example`.
const EXAMPLE: (&str, &str) = (
    "git -C example init --quiet && git -C example add . && git -C example -c user.name=me \
     -c user.email=me@localhost commit --quiet -m first",
    "a repository to try it on",
);
const ON_EXAMPLE: &str = "a run on it with recorded answers, without a key";

/// All templates: the small ones by pattern, then the systems.
const TEMPLATES: &[Template] = &[
    Template {
        name: "router",
        pattern: "router",
        about: "a model sorts a request, and the specialist for its kind answers",
        files: files!("router": "router.yaml", "router.test.yaml", "recording.jsonl"),
        commands: &[
            ("graphrun test router.yaml --coverage", CASES),
            (
                "graphrun execute router.yaml -i request='My router does not start' \
                 --replay recording.jsonl",
                RECORDED,
            ),
            ("graphrun graph router.yaml", "a drawing"),
        ],
    },
    Template {
        name: "research",
        pattern: "map-reduce",
        about: "a question is split, its parts are answered in parallel, and the answers are combined",
        files: files!(
            "research": "research.yaml", "research.test.yaml", "recording.jsonl",
            "prompts/split.md", "prompts/find.md", "prompts/conclude.md",
        ),
        commands: &[
            ("graphrun test research.yaml --coverage", CASES),
            (
                "graphrun execute research.yaml -i question='Why is the sea salty?' \
                 --replay recording.jsonl",
                RECORDED,
            ),
            ("graphrun graph research.yaml", "a drawing"),
        ],
    },
    Template {
        name: "plan_execute",
        pattern: "plan-and-execute",
        about: "a planner makes a list of steps, a worker does one, and the planner adapts the rest",
        files: files!("plan_execute": "plan_execute.yaml", "plan_execute.test.yaml", "recording.jsonl"),
        commands: &[
            ("graphrun test plan_execute.yaml --coverage", CASES),
            (
                "graphrun execute plan_execute.yaml -i goal='bake bread' --replay recording.jsonl",
                RECORDED,
            ),
            ("graphrun plan plan_execute.yaml", "its worst case"),
        ],
    },
    Template {
        name: "review",
        pattern: "reflection",
        about: "a writer and a critic, in a loop with a bound",
        files: files!(
            "review": "review.yaml", "review.test.yaml", "recording.jsonl",
            "prompts/write.md", "prompts/rewrite.md", "prompts/read.md", "prompts/report.md",
        ),
        commands: &[
            ("graphrun test review.yaml --coverage", CASES),
            (
                "graphrun execute review.yaml -i topic=Lighthouses --replay recording.jsonl",
                RECORDED,
            ),
            ("graphrun plan review.yaml", "its worst case"),
        ],
    },
    Template {
        name: "tool_agent",
        pattern: "tool-agent",
        about: "an agent answers questions from the files of a folder, which it searches and reads",
        files: files!(
            "tool_agent": "tool_agent.yaml", "tool_agent.test.yaml", "recording.jsonl",
            "notes/bees.md", "notes/honey.md",
        ),
        commands: &[
            ("graphrun test tool_agent.yaml --coverage", CASES),
            (
                "graphrun execute tool_agent.yaml -i question='How many flowers are in a jar of honey?' \
                 --replay recording.jsonl",
                RECORDED,
            ),
            ("graphrun plan tool_agent.yaml", "its worst case"),
        ],
    },
    Template {
        name: "approval",
        pattern: "human-approval",
        about: "a person decides before a deadline; needs no model",
        files: files!("approval": "approval.yaml", "approval.test.yaml"),
        commands: &[
            ("graphrun test approval.yaml --coverage", "its test cases, without a person"),
            (
                "graphrun execute approval.yaml -i request='A new chair' -i amount=300",
                "a run that asks you",
            ),
        ],
    },
    Template {
        name: "tested_code",
        pattern: "generate-test-retry",
        about: "an agent writes a program until the tests of a person pass, three times at most",
        files: files!(
            "tested_code": "tested_code.yaml", "tested_code.test.yaml", "test_slug.py",
            "recording.jsonl", "prompts/write.md", "prompts/repair.md",
        ),
        commands: &[
            ("graphrun test tested_code.yaml --coverage", CASES),
            (
                "graphrun execute tested_code.yaml --replay recording.jsonl",
                "a run with recorded answers; the tests run in the sandbox",
            ),
            ("graphrun plan tested_code.yaml", "its worst case"),
        ],
    },
    Template {
        name: "chat",
        pattern: "chat",
        about: "an assistant that remembers the conversation",
        files: files!("chat": "chat.yaml", "chat.test.yaml", "recording.jsonl"),
        commands: &[
            ("graphrun test chat.yaml --coverage", CASES),
            (
                "graphrun execute chat.yaml --thread ada -i line='I am Ada' --replay recording.jsonl",
                "a turn with a recorded answer, without a key",
            ),
            (
                "graphrun execute chat.yaml --thread ada -i line='What is my name?' \
                 --replay recording.jsonl",
                "the next turn",
            ),
            (
                "graphrun chat chat.yaml --thread ada --replay recording.jsonl",
                "turns at the terminal",
            ),
        ],
    },
    Template {
        name: "dev_team",
        pattern: TEAM,
        about: "a software team that turns a brief into tested code",
        files: files!(
            ["dev_team.yaml", "dev_team.test.yaml"],
            "dev_team": ["architect.md", "architect.system.md", "ba.md", "ba.system.md", "flush.md",
            "qa.md", "qa.system.md", "qc.md", "qc.system.md", "report.md", "sse.first.md",
            "sse.retry.md", "sse.system.md", "ta.md", "ta.system.md", "tl.md", "tl.system.md"],
            "dev_team/retry.jsonl", "dev_team": "brief.md",
        ),
        commands: &[
            ("graphrun test dev_team.yaml", CASES),
            (
                "graphrun execute dev_team.yaml -i brief=@example/brief.md --replay recording.jsonl",
                RECORDED,
            ),
            (
                "graphrun execute dev_team.yaml -i brief='A shopping list' --out build",
                "a run with your models, in the sandbox",
            ),
            ("graphrun plan dev_team.yaml", "its worst case"),
            ("graphrun models", "the models that you can use"),
        ],
    },
    Template {
        name: "cycle",
        pattern: TEAM,
        about: "four agents that change a repository in iterations",
        files: files!(
            ["cycle.yaml", "cycle.test.yaml", "phase_result.yaml", "phase_result.test.yaml"],
            "cycle": ["cd.again.md", "cd.md", "cd.system.md", "ep.md", "ep.system.md", "ra.again.md",
            "ra.md", "ra.system.md", "report.md", "vas.again.md", "vas.md", "vas.system.md"],
            "cycle/farewell.jsonl", "greeting": "greet.py", "conftest.py", "tests/test_greet.py",
        ),
        commands: &[
            ("graphrun test cycle.yaml --coverage", CASES),
            EXAMPLE,
            (
                "graphrun execute cycle.yaml -i repo_path=example -i task='Add farewell to greet.py, so that all tests \
                 pass.' --replay recording.jsonl",
                ON_EXAMPLE,
            ),
            (
                "graphrun execute cycle.yaml -i repo_path=../my_repo -i task='Add a function'",
                YOUR_MODELS,
            ),
            ("graphrun graph cycle.yaml", "a drawing"),
            ("graphrun models", "the models that you can use"),
        ],
    },
    Template {
        name: "lifecycle",
        pattern: TEAM,
        about: "a coder, tests and a reviewer that change a repository",
        files: files!(
            [
                "lifecycle.yaml", "lifecycle.test.yaml", "lifecycle_policy.yaml",
                "lifecycle_policy.test.yaml",
            ],
            "lifecycle": ["coder.system.md", "follow_up.md", "implement.md", "report.md",
            "review.md", "reviewer.system.md"],
            "lifecycle/farewell.jsonl", "greeting": "greet.py", "conftest.py", "tests/test_greet.py",
        ),
        commands: &[
            ("graphrun test lifecycle_policy.yaml --coverage", "its rules, without a model"),
            ("graphrun test lifecycle.yaml", "its test cases"),
            EXAMPLE,
            (
                "graphrun execute lifecycle.yaml -i repo_path=example -i task='Add farewell to greet.py, so that all tests \
                 pass.' --replay recording.jsonl",
                ON_EXAMPLE,
            ),
            (
                "graphrun execute lifecycle.yaml -i repo_path=../my_repo -i task='Add a function'",
                YOUR_MODELS,
            ),
            ("graphrun models", "the models that you can use"),
        ],
    },
    Template {
        name: "escalation",
        pattern: TEAM,
        about: "an architect, a developer and QA that change a repository part by part",
        files: files!(
            ["escalation.yaml", "escalation.test.yaml"],
            "escalation": ["architect.system.md", "blueprint.md", "developer.system.md",
            "implement.md", "planner.system.md", "qa.md", "qa.system.md", "report.md", "split.md"],
            "escalation/farewell.jsonl", "greeting": "greet.py", "conftest.py", "tests/test_greet.py",
        ),
        commands: &[
            ("graphrun test escalation.yaml", CASES),
            EXAMPLE,
            (
                "graphrun execute escalation.yaml -i repo_path=example -i task='Add farewell to greet.py, so that all tests \
                 pass.' --replay recording.jsonl",
                ON_EXAMPLE,
            ),
            (
                "graphrun execute escalation.yaml -i repo_path=../my_repo -i task='Add a function'",
                YOUR_MODELS,
            ),
            ("graphrun graph escalation.yaml", "a drawing"),
            ("graphrun models", "the models that you can use"),
        ],
    },
    Template {
        name: "autocode",
        pattern: TEAM,
        about: "a task becomes a specification, sub-tasks side by side, and a change that QA has approved",
        files: files!(
            [
                "autocode.yaml", "autocode.test.yaml", "autocode_subtask.yaml",
                "autocode_subtask.test.yaml", "autocode_commands.py",
            ],
            "autocode": ["analyst.system.md", "assess.md", "assessor.system.md",
            "code.again.md", "code.md", "coder.system.md", "compact.md", "context.md",
            "critique.md", "discovery.md", "fix.md", "fixer.system.md", "history.md",
            "interview.md", "mend.md", "plan.md", "planner.system.md", "progress.md",
            "quick_spec.md", "recover.md", "recovery.system.md", "report.md",
            "requirements.md", "research.md", "review.md", "reviewer.system.md", "spec.md",
            "spec_file.md", "summariser.system.md", "validate.md", "writer.system.md"],
            "autocode/simple.jsonl", "autocode/shop": "prices.py", "conftest.py", "tests/test_prices.py",
        ),
        commands: &[
            (
                "graphrun test autocode_subtask.yaml --coverage",
                "the rules of a sub-task, without a model",
            ),
            EXAMPLE,
            (
                "graphrun execute autocode.yaml -i repo_path=example -i task='Add discounts and a receipt.' \
                 --replay recording.jsonl --run-id first",
                "a run on it with recorded answers, without a key, until it asks for your approval",
            ),
            (
                "graphrun resume first --answer approve='{\"decision\": \"approved\"}'",
                "your approval",
            ),
            (
                "graphrun execute autocode.yaml -i repo_path=../my_repo -i task='Add a function'",
                YOUR_MODELS,
            ),
            ("graphrun graph autocode.yaml", "a drawing"),
            ("graphrun models", "the models that you can use"),
        ],
    },
];

impl Template {
    /// Returns its pattern, under which it can be named too, if that differs from its own name.
    fn alias(&self) -> Option<&'static str> {
        (self.pattern != TEAM && self.pattern != self.name).then_some(self.pattern)
    }

    /// Returns its description with its pattern in front, if its name does not say it already.
    fn help(&self) -> String {
        let text = match self.alias() {
            Some(pattern) => format!("{pattern}: {}", self.about),
            None => self.about.to_owned(),
        };
        let mut letters = text.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
    }
}

impl ValueEnum for Template {
    fn value_variants<'a>() -> &'a [Self] {
        TEMPLATES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.name).help(self.help());
        Some(value.aliases(self.alias()))
    }
}
