//! Installs what steps need.

use std::path::Path;

use crate::need::Need;
use crate::process;

/// Makes sure that everything needed is there. If `install` allows it, installs what is missing. The error names what
/// is missing, and how to install it.
pub(crate) fn provide(needs: &[Need], root: &Path, install: bool) -> Result<(), String> {
    let mut missing = Vec::new();
    for need in needs.iter().filter(|need| !need.is_present(root)) {
        let commands = need.install();
        let how = commands
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" && ");
        if !install {
            missing.push(format!("needs {need}; to install it: {how}"));
            continue;
        }
        println!("installing {need}");
        let mut commands = commands.iter();
        let result = commands.try_for_each(|command| {
            println!("$ {command}");
            process::install(command, root)
        });
        if let Err(failure) = result {
            missing.push(format!(
                "needs {need}, which does not install ({}): {how}",
                failure.why
            ));
        } else if !need.is_present(root) {
            missing.push(format!(
                "needs {need}, which is not found although it installed: {how}"
            ));
        }
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(missing.join("\n"))
    }
}
