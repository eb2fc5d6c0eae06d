//! Files broken by people's usual slips, each with the report that is printed for it. `IOP_UPDATE=1 cargo test -p iop-edge slips`
//! writes the reports anew; whoever does that reads them as somebody who has never seen this program.

use std::fs;

use super::*;

fn slips() -> Vec<std::path::PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/tests/slips");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "yaml"));
    files.sort();
    files
}

// req: CFG-11
#[test]
fn a_usual_slip_gets_the_report_that_helps() {
    let files = slips();
    assert!(files.len() >= 30, "{}", files.len());
    for file in files {
        let name = Path::new(file.file_name().unwrap());
        let text = fs::read_to_string(&file).unwrap();
        let Err(errors) = load_text(&text, name, &|_| None) else { panic!("{} loads", name.display()) };
        generated::is_up_to_date(&file.with_extension("txt"), &format!("{errors}\n"));
    }
}

// req: CFG-11
#[test]
fn every_line_of_every_report_names_its_place() {
    for file in slips() {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&file).unwrap();
        let report = load_text(&text, Path::new(&name), &|_| None).unwrap_err().to_string();
        for line in report.lines() {
            let place = line.strip_prefix(&format!("{name}:")).unwrap_or_else(|| panic!("{line}"));
            let mut numbers = place.split(':');
            let mut number = || numbers.next().and_then(|digits| digits.parse::<usize>().ok());
            let (Some(row), Some(column)) = (number(), number()) else { panic!("{line}") };
            let lines = text.lines().count().max(1) + 1;
            assert!((1..=lines).contains(&row) && column > 0, "{line}");
            assert!(
                !line.ends_with('.') && !line.contains("sk-1234") && !line.contains("notthehash"),
                "{line}"
            );
        }
    }
}
