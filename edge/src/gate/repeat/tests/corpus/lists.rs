//! Lists, with numbers and without.

use super::{Named, named};

pub(super) fn texts() -> Vec<Named> {
    let mut texts = Vec::new();
    for (i, item) in [
        "foo", "Check the door again.", "Milk, eggs, bread", "Say thank you", "확인했습니다.", "再次检查门。", "もう一度確認する。",
        "Open the file, look at the function, change what is wrong, run the tests, and write down what they say.",
    ]
    .into_iter()
    .enumerate()
    {
        let list = |name: &str, times: usize, line: &dyn Fn(usize) -> String| {
            named(format!("{name} {i}"), (1..=times).map(line).collect::<String>())
        };
        texts.extend([
            list("numbered", 500, &|n| format!("{n}. {item}\n")),
            list("numbered in one line", 300, &|n| format!("{n}. {item} ")),
            list("numbered with brackets", 300, &|n| format!("{n}) {item}\n")),
            list("steps", 200, &|n| format!("**Step {n}:** {item}\n\n")),
            list("days", 300, &|n| format!("Day {n}: {item}\n")),
            list("equal items", 25, &|_| format!("- {item}\n")),
            list("equal tasks", 25, &|_| format!("- [ ] {item}\n")),
            list("equal lines", 25, &|_| format!("{item}\n")),
        ]);
    }
    texts.push(named("counting", (1..3000).map(|n| format!("{n}, ")).collect::<String>()));
    texts.push(named("counting down", (1..1500).rev().map(|n| format!("{n}...\n")).collect::<String>()));
    texts.push(named("times table", {
        let product = |n: usize| format!("{} x {} = {}\n", n / 20, n % 20, (n / 20) * (n % 20));
        (0..400).map(product).collect::<String>()
    }));
    texts.push(named("short items", "- x\n".repeat(300)));
    texts.push(named("empty items", "- \n".repeat(300)));
    texts.push(named("empty lines", "\n".repeat(400)));
    texts.push(named("form with lines", "Name: ______________________________\n\n".repeat(40)));
    texts.push(named("form of dots", "Name ........................................\n".repeat(40)));
    texts.push(named("alphabet", "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z\n".repeat(30)));
    texts.push(named("weeks", "Monday\nTuesday\nWednesday\nThursday\nFriday\nSaturday\nSunday\n".repeat(30)));
    texts.push(named("names of months", "Jan,Feb,Mar,Apr,May,Jun,Jul,Aug,Sep,Oct,Nov,Dec\n".repeat(30)));
    let plan = |n: usize| format!("### Week {n}\n- Run 5 km\n- Rest\n- Run 5 km\n- Rest\n- Long run\n\n");
    texts.push(named("training plan", (1..60).map(plan).collect::<String>()));
    let question = |n: usize| format!("Question {n}\nA) True\nB) False\n\n");
    texts.push(named("questionnaire", (1..150).map(question).collect::<String>()));
    texts.push(named("answers", (1..200).map(|n| format!("{n}. True\n")).collect::<String>()));
    texts.push(named("rounds", "Rock\nPaper\nScissors\n".repeat(100)));
    texts
}
