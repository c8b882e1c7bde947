//! `cargo xtask test`: chooses the steps, installs what they need, runs them, and reports the results.

use std::fmt;
use std::fs;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::command::Cmd;
use crate::disk::Room;
use crate::failure::Failure;
use crate::need;
use crate::process;
use crate::provide::provide;
use crate::skipped;
use crate::step::{Scope, Step, Tier, root};
use crate::steps::{self, STEPS};
use crate::summary::{Outcome, Row, Summary, time};
use crate::watch;

/// How this run treats missing things.
struct Policy {
    /// `CI` is set: nothing may be skipped.
    ci: bool,
    /// Missing things may be installed.
    install: bool,
}

/// Runs the task.
pub(crate) fn main(mut args: Args) -> Result<ExitCode, String> {
    let tier = match (args.flag("--quick"), args.flag("--deep")) {
        (false, false) => Tier::Full,
        (true, false) => Tier::Quick,
        (false, true) => Tier::Deep,
        (true, true) => return Err("--quick or --deep, not both".to_owned()),
    };
    let list = args.flag("--list");
    let no_install = args.flag("--no-install");
    let only = args.values("--only")?;
    let skip = args.values("--skip")?.unwrap_or_default();
    args.finish()?;
    let steps = select(tier, only.as_deref(), &skip)?;
    if list {
        print_list(&steps);
        return Ok(ExitCode::SUCCESS);
    }

    let ci = skipped::is_ci();
    let policy = Policy {
        ci,
        install: need::is_root() && !no_install,
    };
    let scratch = std::env::temp_dir().join(format!("tidegate-xtask-{}", std::process::id()));
    fs::create_dir_all(&scratch)
        .map_err(|error| format!("cannot make {}: {error}", scratch.display()))?;
    let scope = Scope {
        tier,
        root: root(),
        scratch,
    };

    let mut summary = Summary::default();
    for step in steps {
        println!("\n==> {}: {}", step.name, step.what);
        let row = run(step, &scope, &policy);
        let word = match row.outcome {
            Outcome::Passed => "passed",
            Outcome::Failed(_) => "FAILED",
            Outcome::Skipped(_) => "skipped",
        };
        println!(
            "<== {} {word} after {}, {} of a processor",
            step.name,
            time(row.time),
            time(row.used)
        );
        summary.rows.push(row);
    }
    // This is best effort. Files that cannot be removed are among the machine's temporary files.
    let _ = fs::remove_dir_all(&scope.scratch);
    println!("\n{summary}");
    Ok(if summary.failed() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The steps that the command line asks for, in the table's order.
fn select(
    tier: Tier,
    only: Option<&[String]>,
    skip: &[String],
) -> Result<Vec<&'static Step>, String> {
    for name in only.unwrap_or_default().iter().chain(skip) {
        steps::find(name)?;
    }
    let named = |names: &[String], step: &Step| names.iter().any(|name| name == step.name);
    let asked_for = |step: &&Step| only.map_or(step.tier <= tier, |only| named(only, step));
    Ok(STEPS
        .iter()
        .filter(asked_for)
        .filter(|step| !named(skip, step))
        .collect())
}

/// Describes all steps, and marks those that are not chosen.
fn print_list(chosen: &[&Step]) {
    let width = STEPS.iter().map(|step| step.name.len()).max().unwrap_or(0);
    for step in STEPS {
        let is_chosen = chosen.iter().any(|other| other.name == step.name);
        let when = match step.tier {
            _ if is_chosen => "",
            Tier::Deep => " (not now: runs with --deep)",
            Tier::Quick | Tier::Full => " (not now)",
        };
        println!("{:width$}  {}{when}", step.name, step.what);
        for need in step.needs {
            println!("{:width$}  needs {need}", "");
        }
    }
}

/// Runs one step, from installing its needs to collecting its skipped tests.
fn run(step: &'static Step, scope: &Scope, policy: &Policy) -> Row {
    let cost = Cost::begin();
    let scope = &Scope {
        tier: scope.tier.max(step.tier),
        ..scope.clone()
    };
    let skips = scope.scratch.join(format!("{}.skips", step.name));
    let mut said = String::new();
    let mut outcome = match provide(step.needs, &scope.root, policy.install) {
        Err(missing) => Outcome::Skipped(missing),
        Ok(()) => {
            let noted = |command: Cmd| command.hidden_env("TIDEGATE_SKIPS", &skips);
            let commands = (step.commands)(scope);
            let commands = commands.map(|commands| commands.into_iter().map(noted).collect());
            let commands: Result<Vec<_>, _> = commands.map_err(Failure::from);
            let result = commands.and_then(|commands| run_all(&commands, scope));
            result.map_or_else(
                |failure| {
                    said = failure.said;
                    Outcome::Failed(failure.why)
                },
                |()| Outcome::Passed,
            )
        }
    };
    let skipped_tests = match fs::read_to_string(&skips) {
        Ok(lines) => lines
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(str::to_owned)
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => vec![format!("their list cannot be read: {error}")],
    };
    if policy.ci {
        outcome = match outcome {
            Outcome::Skipped(missing) => Outcome::Failed(missing),
            Outcome::Passed if !skipped_tests.is_empty() => {
                Outcome::Failed("a test was skipped, and CI is set".to_owned())
            }
            outcome => outcome,
        };
    }
    let free = Room::free(&scope.root);
    if let (Outcome::Failed(why), Some(room)) = (&mut outcome, free.filter(|room| room.is_scarce()))
    {
        why.push_str(&format!("\nthe disk is full: {room} are free"));
    }
    Row {
        name: step.name,
        outcome,
        time: cost.time(),
        used: cost.used(),
        free,
        said,
        skipped_tests,
    }
}

/// Runs a step's commands up to the first that fails, and reports the cost of each.
fn run_all(commands: &[Cmd], scope: &Scope) -> Result<(), Failure> {
    if commands.is_empty() {
        println!("no package has changed");
    }
    let mut groups = commands.chunk_by(|_, next| next.is_beside());
    groups.try_for_each(|group| {
        let cost = Cost::begin();
        let result = match group {
            [command] => {
                println!("$ {command}");
                process::run(command, &scope.root)
            }
            _ => process::run_beside(group, &scope.root),
        };
        println!("{cost}");
        result
    })
}

/// The cost of something that is running.
struct Cost {
    begun: Instant,
    used: Duration,
}

impl Cost {
    fn begin() -> Self {
        Cost {
            begun: Instant::now(),
            used: watch::used_in_all(),
        }
    }

    fn time(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The processor time so far.
    fn used(&self) -> Duration {
        watch::used_in_all().saturating_sub(self.used)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, used) = (time(self.time()), time(self.used()));
        write!(f, "took {passed}, {used} of a processor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::cmd;
    use crate::need::Need;
    use std::path::{Path, PathBuf};

    const ABSENT: Need = Need::Apt {
        program: "no-such-program-as-this",
        package: "some-package",
    };
    const ON_A_USERS_MACHINE: Policy = Policy {
        ci: false,
        install: false,
    };
    const IN_CI: Policy = Policy {
        ci: true,
        install: false,
    };

    fn step(
        name: &'static str,
        needs: &'static [Need],
        commands: fn(&Scope) -> Result<Vec<Cmd>, String>,
    ) -> &'static Step {
        Box::leak(Box::new(Step {
            name,
            what: "",
            tier: Tier::Full,
            needs,
            commands,
        }))
    }

    fn scope() -> Scope {
        Scope {
            tier: Tier::Full,
            root: PathBuf::from("/"),
            scratch: std::env::temp_dir(),
        }
    }

    #[test]
    fn what_is_missing_is_skipped_here_and_fails_in_ci() {
        let step = step("missing", &[ABSENT], |_| Ok(vec![cmd("true")]));
        let Outcome::Skipped(why) = run(step, &scope(), &ON_A_USERS_MACHINE).outcome else {
            panic!("not skipped")
        };
        assert!(
            why.contains("no-such-program-as-this") && why.contains("apt-get install"),
            "{why}"
        );
        assert!(matches!(
            run(step, &scope(), &IN_CI).outcome,
            Outcome::Failed(_)
        ));
    }

    #[test]
    fn a_step_stops_at_its_first_failure() {
        let step = step("stops", &[], |_| {
            Ok(vec![
                cmd("true"),
                cmd("false"),
                cmd("no-such-program-as-this"),
            ])
        });
        assert_eq!(
            run(step, &scope(), &IN_CI).outcome,
            Outcome::Failed("exit status: 1".to_owned())
        );
    }

    #[test]
    fn nothing_to_do_is_passed_and_no_answer_has_failed() {
        let outcome = |commands| run(step("some", &[], commands), &scope(), &IN_CI).outcome;
        assert_eq!(outcome(|_| Ok(Vec::new())), Outcome::Passed);
        let why = "`git` fails".to_owned();
        assert_eq!(
            outcome(|_| Err("`git` fails".to_owned())),
            Outcome::Failed(why)
        );
    }

    #[test]
    fn a_skipped_test_is_reported_and_fails_in_ci() {
        let scratch =
            std::env::temp_dir().join(format!("tidegate-xtask-test-{}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap();
        let scope = Scope {
            tier: Tier::Full,
            root: Path::new("/").to_owned(),
            scratch,
        };
        let step = step("skips", &[], |_| {
            Ok(vec![
                cmd("sh -c").arg(r#"echo "some_test: no device" > "$TIDEGATE_SKIPS""#),
            ])
        });
        let row = run(step, &scope, &ON_A_USERS_MACHINE);
        assert_eq!(row.outcome, Outcome::Passed);
        assert_eq!(row.skipped_tests, ["some_test: no device"]);
        assert!(matches!(
            run(step, &scope, &IN_CI).outcome,
            Outcome::Failed(_)
        ));
        fs::remove_dir_all(&scope.scratch).unwrap();
    }

    #[test]
    fn each_run_includes_the_smaller_ones() {
        let names = |tier, only, skip: &[String]| {
            let steps = select(tier, only, skip).unwrap();
            steps.iter().map(|step| step.name).collect::<Vec<_>>()
        };
        let [quick, full, deep] =
            [Tier::Quick, Tier::Full, Tier::Deep].map(|tier| names(tier, None, &[]));
        assert!(quick.contains(&"fmt") && !quick.contains(&"miri"));
        assert!(full.contains(&"miri") && !full.contains(&"clone"));
        assert!(quick.iter().all(|name| full.contains(name)));
        assert_eq!(deep.len(), STEPS.len());
        let only = ["clone", "fmt"].map(str::to_owned);
        assert_eq!(names(Tier::Full, Some(&only), &[]), ["fmt", "clone"]);
        assert!(!names(Tier::Full, None, &["unit".to_owned()]).contains(&"unit"));
        assert!(select(Tier::Full, None, &["no-such-step".to_owned()]).is_err());
    }
}
