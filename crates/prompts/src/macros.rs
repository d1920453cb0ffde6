//! Macros and loops that call themselves: their bodies are checked for each call, with the types of its arguments.
//!
//! A macro reads its arguments, the fields of the state and other macros. The engine also gives it
//! names from the place of its declaration, and names that are set later; the check refuses these. The block of a `{% call %}` reads all names around it.

use std::{collections::BTreeSet, rc::Rc};

use graphrun_core::state::Type;
use graphrun_expressions::{
    flow::guarantee::{Guarantee, Guarantees},
    problem::suggestion,
    typing::{describe, null},
};
use minijinja::machinery::{
    Span,
    ast::{Call, CallArg, CallBlock, Expr, Macro, Spanned},
};

use super::{
    checker::{Meaning, PromptChecker, names_in},
    expressions::{CALLER, LOOP},
    metered::reads,
    set_under::SetUnder,
    shapes::either,
    variables::Variables,
};

/// The most bodies of macros and loops that are checked for one prompt.
const BODIES_MAX: usize = 1_000;
/// The most statements that are checked before no further body is.
const STATEMENTS_MAX: usize = 100_000;
/// The deepest nesting of blocks and expressions, those of the calls around included, where a body is checked: the
/// check recurses over them.
const DEPTH_MAX: usize = 200;

/// A macro, or the block of a `{% call %}`.
#[derive(Clone)]
pub(super) struct Callee<'t> {
    declaration: &'t Macro<'t>,
    /// The number of frames at the declaration of a macro.
    depth: usize,
    /// Whether a macro has a place for a block.
    takes_block: bool,
    /// What a block sees; a macro sees no variables.
    surroundings: Option<Rc<EnclosingScope<'t>>>,
}

/// A macro that may not be called any more once its scope ends.
pub(super) struct Declaration<'t> {
    callee: Callee<'t>,
    /// The number of names at its place.
    names: usize,
}

struct EnclosingScope<'t> {
    variables: Variables<'t>,
    frames: Vec<usize>,
    known: Guarantees,
    set_under: SetUnder,
    /// The macros whose bodies the block stands in.
    open: Vec<*const ()>,
}

/// An argument of a call, by its position or its name.
struct Argument<'e> {
    name: Option<&'e str>,
    expression: &'e Expr<'e>,
    ty: Type,
}

impl Callee<'_> {
    /// Returns whether both are the same macro.
    pub(super) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.declaration, other.declaration)
    }

    /// Returns whether it is a block.
    pub(super) fn is_block(&self) -> bool {
        self.surroundings.is_some()
    }

    pub(super) fn id(&self) -> *const () {
        std::ptr::from_ref(self.declaration).cast()
    }
}

impl<'t> PromptChecker<'_, 't> {
    pub(super) fn declare(&mut self, it: &'t Spanned<Macro<'t>>) {
        let depth = self.frames.len();
        let takes_block = reads(it).contains(CALLER);
        let callee = Callee { declaration: it, depth, takes_block, surroundings: None };
        self.bind(it.name, Meaning::Macro(callee.clone()));
        self.macro_names.insert(it.name);
        self.macros.push(Declaration { callee, names: self.variables.count() });
    }

    /// Checks the macros of the scope that ends here, if nothing calls them, with arguments of any type: their names may be
    /// wrong. The names before their declarations are still there.
    pub(super) fn check_uncalled(&mut self, first: usize) {
        for Declaration { callee, names } in self.macros.split_off(first) {
            if self.depth > DEPTH_MAX || !self.called.insert(callee.id()) {
                continue;
            }
            let variables = self.variables.in_macro(names);
            let arguments = callee.declaration.args.iter().filter_map(name_of);
            let arguments = arguments.map(|it| (it.to_owned(), Some(Type::Any))).collect();
            self.depth += 1;
            self.check_body(&callee, variables, arguments, Some(Meaning::Value(Type::Any)));
            self.depth -= 1;
        }
    }

    pub(super) fn call_block(&mut self, it: &'t CallBlock<'t>) {
        if let Expr::Var(name) = &it.call.expr
            && let Some(Meaning::Macro(callee)) = self.variable(name.id)
        {
            let callee = callee.clone();
            if callee.takes_block {
                if !self.may_check_body(it.call.expr.span()) {
                    return;
                }
                let surroundings = EnclosingScope {
                    variables: self.variables.clone(),
                    frames: self.frames.clone(),
                    known: self.known.clone(),
                    set_under: self.set_under.clone(),
                    open: self.open.clone(),
                };
                let block = Callee {
                    declaration: &it.macro_decl,
                    depth: 0,
                    takes_block: false,
                    surroundings: Some(Rc::new(surroundings)),
                };
                self.call_macro(name.id, &callee, &it.call, Some(block));
            } else {
                let message = format!("the macro `{}` does not use its block", name.id);
                self.problem("GR041", it.call.expr.span(), message, "takes no block").help =
                    Some("write `{{ caller() }}` in the macro, where the block goes".to_owned());
            }
            return;
        }
        let message = "`call` needs a macro".to_owned();
        self.problem("GR041", it.call.expr.span(), message, "no macro").help =
            Some("declare it: `{% macro NAME() %} … {{ caller() }} … {% endmacro %}`".to_owned());
    }

    /// Checks a call, and the body of the macro with the types of the arguments.
    pub(super) fn call_macro(
        &mut self,
        name: &str,
        callee: &Callee<'t>,
        call: &Call<'_>,
        block: Option<Callee<'t>>,
    ) -> Type {
        let span = call.expr.span();
        let known = self.problems.len();
        let mut given = Vec::new();
        for argument in &call.args {
            let (name, expression) = match argument {
                CallArg::Pos(it) => (None, it),
                CallArg::Kwarg(name, it) => (Some(*name), it),
                CallArg::PosSplat(it) | CallArg::KwargSplat(it) => {
                    self.refuse_splat(it.span());
                    return Type::String;
                }
            };
            let ty = self.value(expression);
            given.push(Argument { name, expression, ty });
        }
        let names: Vec<&str> = callee.declaration.args.iter().filter_map(name_of).collect();
        let mut types: Vec<Option<Type>> = vec![None; names.len()];
        for (at, argument) in given.iter().enumerate() {
            let span = argument.expression.span();
            let at = match argument.name {
                None => at,
                Some(wanted) => {
                    let Some(at) = names.iter().position(|it| *it == wanted) else {
                        let help = suggestion(wanted, names.iter().copied());
                        let message = format!("the macro `{name}` has no argument `{wanted}`");
                        self.problem("GR041", span, message, "no such argument").help = help;
                        continue;
                    };
                    at
                }
            };
            match types.get_mut(at) {
                Some(ty @ None) => *ty = Some(argument.ty.clone()),
                Some(Some(_)) => {
                    let message = format!("the macro `{name}` gets `{}` twice", names[at]);
                    self.problem("GR041", span, message, "again");
                }
                None => {
                    let count = names.len();
                    let message = format!("the macro `{name}` takes {count} arguments");
                    self.problem("GR041", span, message, "one too many").help =
                        Some(format!("it is declared as `{name}({})`", names.join(", ")));
                    return Type::String;
                }
            }
        }
        if self.open.contains(&callee.id()) {
            let message = format!("the macro `{name}` calls itself");
            self.problem("GR040", span, message, "calls itself").help = Some(
                "use a loop: `{% for … recursive %} … {{ loop(…) }} … {% endfor %}`".to_owned(),
            );
            return Type::String;
        }
        if self.problems.len() > known {
            return Type::String;
        }
        let caller = block.map_or(Meaning::Value(null()), Meaning::Macro);
        let shown = self.check_call(callee, &names, types, caller, span);
        for problem in &mut self.problems[known..] {
            problem.help.get_or_insert_with(|| format!("a call gives `{name}` {shown}"));
        }
        Type::String
    }

    /// Checks the body of a macro with the types of the arguments that a call gives. Returns how a message shows them.
    fn check_call(
        &mut self,
        callee: &Callee<'t>,
        names: &[&str],
        types: Vec<Option<Type>>,
        caller: Meaning<'t>,
        span: Span,
    ) -> String {
        let shown = names
            .iter()
            .zip(&types)
            .filter_map(|(name, ty)| Some(format!("`{name}`: {}", describe(ty.as_ref()?))));
        let shown: Vec<String> = shown.collect();
        self.called.insert(callee.id());
        let end = self.frames.get(callee.depth).copied().unwrap_or(self.variables.count());
        let seen = self.variables.seen(end);
        let key = format!("{:?} {types:?} {seen:?} {:?}", callee.id(), self.known_here());
        // Each block of a `call` is another one, and counted where it stands.
        let is_counted = matches!(caller, Meaning::Macro(_));
        let is_new = self.checked.insert(key) || is_counted || callee.is_block();
        if is_new && (is_counted || self.may_check_body(span)) {
            let arguments = names.iter().map(|it| (*it).to_owned()).zip(types);
            let variables = match &callee.surroundings {
                Some(it) => it.variables.clone(),
                None => self.variables.in_macro(end),
            };
            self.check_body(callee, variables, arguments.collect(), Some(caller));
        }
        if shown.is_empty() { "no arguments".to_owned() } else { shown.join(", ") }
    }

    /// Returns the guarantees here, as texts.
    fn known_here(&self) -> BTreeSet<String> {
        let known = self.known.iter().filter(|it| **it != Guarantee::Outdated);
        known.map(|it| format!("{it:?}")).collect()
    }

    /// Returns whether one more body can be checked, and reports one that is too many.
    fn may_check_body(&mut self, span: Span) -> bool {
        self.bodies += 1;
        let is_over =
            self.bodies > BODIES_MAX || self.statements > STATEMENTS_MAX || self.depth > DEPTH_MAX;
        if is_over {
            let message = "the macros and recursive loops call each other too often".to_owned();
            self.problem("GR040", span, message, "one too many");
        }
        !is_over
    }

    fn check_body(
        &mut self,
        callee: &Callee<'t>,
        variables: Variables<'t>,
        arguments: Vec<(String, Option<Type>)>,
        caller: Option<Meaning<'t>>,
    ) {
        let variables = std::mem::replace(&mut self.variables, variables);
        let (frames, known, set_under) = if let Some(it) = &callee.surroundings {
            (it.frames.clone(), it.known.clone(), it.set_under.clone())
        } else {
            let mut known = self.known.clone();
            // A condition on a variable of the caller proves nothing about a field with its name.
            known.forget(|path| names_in(path).any(|it| variables.is_defined(it)));
            let frames = self.frames.iter().take(callee.depth).copied().collect();
            (frames, known, SetUnder::default())
        };
        let frames = std::mem::replace(&mut self.frames, frames);
        let known = std::mem::replace(&mut self.known, known);
        let set_under = std::mem::replace(&mut self.set_under, set_under);
        let loops = std::mem::take(&mut self.loops);
        let around = callee.surroundings.as_ref().map_or(&self.open, |it| &it.open).clone();
        let open = std::mem::replace(&mut self.open, around);
        self.open.push(callee.id());
        self.frame(|checker| {
            // The last argument gets its value first.
            let defaults = callee.declaration.defaults.iter().rev();
            let mut defaults = defaults.map(Some).chain(std::iter::repeat(None));
            for (name, ty) in arguments.into_iter().rev() {
                let default = defaults.next().flatten();
                // `none` is an argument, and an undefined value is not.
                let ty = match (default, ty) {
                    (Some(default), None) => checker.value(default),
                    (Some(default), Some(ty @ Type::Optional(_))) => {
                        either(ty, checker.value(default))
                    }
                    (None, None) => null(),
                    (_, Some(ty)) => ty,
                };
                checker.bind(&name, Meaning::Value(ty));
            }
            let caller = match (caller, &callee.surroundings) {
                (_, Some(_)) | (None, _) => Meaning::Outside,
                (Some(caller), None) => caller,
            };
            checker.bind(CALLER, caller);
            checker.body(&callee.declaration.body);
        });
        self.open = open;
        self.variables = variables;
        self.frames = frames;
        self.known = known;
        self.set_under = set_under;
        self.loops = loops;
    }

    /// Returns a call of the innermost loop, whose body is checked with the items of the argument.
    pub(super) fn recurse(&mut self, call: &Call<'_>) -> Type {
        let span = call.expr.span();
        let Some(innermost) = self.loops.last().copied().filter(|it| it.recursive) else {
            self.arguments(&call.args);
            let message = "`loop` is called outside of a recursive loop".to_owned();
            self.problem("GR041", span, message, "cannot be called").help = Some(
                "write `{% for … recursive %}`; an inner loop and a macro call only their own"
                    .to_owned(),
            );
            return Type::String;
        };
        let [CallArg::Pos(iterated)] = call.args.as_slice() else {
            let message = format!("`{LOOP}` takes one list");
            self.problem("GR041", span, message, "here");
            return Type::String;
        };
        let ty = self.present(iterated);
        let item = self.looped_over(&ty, iterated.span());
        // The names of the outer round are visible in the inner one.
        let names = self.variables.digest();
        let set = self.set_under.digest();
        let id: *const () = std::ptr::from_ref(innermost).cast();
        let key = format!("{id:?} {item:?} {names:?} {set:?} {:?}", self.known_here());
        if self.checked.insert(key) && self.may_check_body(span) {
            self.loop_body(innermost, item, None, false);
        }
        Type::String
    }
}

fn name_of<'e>(expression: &Expr<'e>) -> Option<&'e str> {
    match expression {
        Expr::Var(it) => Some(it.id),
        _ => None,
    }
}
