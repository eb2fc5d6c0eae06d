//! Songs, laughter and other speech.

use super::{Named, named};

/// What is said, and how often.
const SAID: &[(&str, &str, usize)] = &[
    ("laughter", "ha", 1000),
    ("laughter with gaps", "ha ", 600),
    ("laughter of korea", "ㅋ", 1500),
    ("tears of korea", "ㅠ", 1000),
    ("laughter of korea in lines", "ㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋ\n", 100),
    ("laughter of china", "哈", 1500),
    ("laughter of japan", "笑", 1000),
    ("grass of japan", "w", 1500),
    ("laughter of spain", "ja", 800),
    ("laughter of thailand", "5", 1000),
    ("emoji", "😂", 1000),
    ("emoji of two", "👏🏽", 500),
    ("hearts", "❤️ ", 500),
    ("scream", "A", 2000),
    ("long word", "o", 1500),
    ("buzz", "z", 2000),
    ("no", "no ", 600),
    ("very", "very, ", 500),
    ("hey", "Na na na na, hey Jude\n", 40),
    ("around", "Around the world, around the world\n", 72),
    ("no work", "All work and no play makes Jack a dull boy.\n", 50),
    ("punishment", "I will not talk in class.\n", 100),
    ("punishment with comma", "I must not tell lies, ", 100),
    ("prayer", "Om Namah Shivaya\n", 108),
    (
        "mantra",
        "Hare Krishna Hare Krishna Krishna Krishna Hare Hare\nHare Rama Hare Rama Rama Rama Hare Hare\n",
        16,
    ),
    ("hail", "Hail Mary, full of grace, the Lord is with thee.\n", 50),
    ("buffalo", "Buffalo buffalo ", 100),
    ("sheep", "One more sheep. ", 150),
    ("rose", "a rose is a rose is ", 50),
    ("never", "Never, never, never give up!\n", 60),
    ("yes in korea", "네, 알겠습니다.\n", 150),
    ("fighting", "화이팅! ", 300),
    ("thanks in japan", "ありがとうございます。", 150),
    ("now in japan", "無駄", 500),
    ("work in china", "加油！", 600),
    ("saying in china", "好好学习，天天向上。\n", 150),
    ("words of hindi", "राम राम ", 200),
    ("words of arabic", "سبحان الله ", 200),
    ("words of russia", "ура! ", 300),
    ("tick", "tick tock ", 200),
    ("knock", "Knock, knock, knock. Penny. ", 60),
    ("beep", "beep boop ", 200),
    (
        "row",
        "Row, row, row your boat, gently down the stream.\nMerrily, merrily, merrily, merrily, life is but a dream.\n",
        12,
    ),
    ("greeting", "Hello, hello, hello, how low\n", 40),
    ("train", "choo ", 300),
    ("cat", "meow ", 400),
    ("minecraft", "🎵🎶 la la la 🎶🎵\n", 100),
    (
        "lorem",
        "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna \
         aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo consequat. \
         Duis aute irure dolor in reprehenderit in voluptate velit esse cillum dolore eu fugiat nulla pariatur. Excepteur sint \
         occaecat cupidatat non proident, sunt in culpa qui officia deserunt mollit anim id est laborum.\n\n",
        5,
    ),
    (
        "chorus",
        "Sing it loud and sing it long,\nevery voice is in the song,\nevery road will lead us home,\nno one has to walk alone.\n\n",
        8,
    ),
];

const VERSES: [&str; 4] = [
    "The river took the summer down,\nthe leaves lay red and golden brown,\nand nobody was in the town\nto see the morning rise.",
    "The winter came with silver feet,\nit laid its snow along the street,\nand all the clocks forgot to beat\nbelow the empty skies.",
    "A child was first to leave its door,\nit had not seen the white before,\nit laughed, and then it laughed some more\nand rubbed its sleepy eyes.",
    "So we went out, and one by one\nwe danced until the day was done,\nuntil the moon became the sun\nand told the stars goodbyes.",
];

pub(super) fn texts() -> Vec<Named> {
    let mut texts: Vec<Named> =
        SAID.iter().map(|(name, unit, times)| named(*name, unit.repeat(*times))).collect();
    let refrain = "Oh, turn again, turn again, turn again,\nturn till you come to my door.\n".repeat(2);
    let song = |rounds: usize| -> String {
        (0..rounds).flat_map(|_| VERSES).map(|verse| format!("{verse}\n\n{refrain}\n")).collect()
    };
    texts.push(named("song with a refrain", song(1)));
    texts.push(named("song that is sung twice", song(2)));
    let bottles = |n: usize| {
        format!(
            "{n} bottles of beer on the wall, {n} bottles of beer.\nTake one down and pass it around.\n\n"
        )
    };
    texts.push(named("bottles", (1..100).rev().map(bottles).collect::<String>()));
    let gifts =
        ["a partridge", "two doves", "three hens", "four birds", "five rings", "six geese", "seven swans"];
    let day = |n: usize| {
        let all: Vec<&str> = gifts.iter().take(n).rev().copied().collect();
        format!("On day {n} of Christmas my true love sent to me {}.\n", all.join(", "))
    };
    texts.push(named("gifts", (1..=7).map(day).collect::<String>()));
    let farm = |animal: &str| {
        format!("Old MacDonald had a farm, E-I-E-I-O, and on that farm he had a {animal}, E-I-E-I-O.\n")
            .repeat(2)
    };
    texts.push(named("farm", ["cow", "pig", "duck", "horse", "sheep"].map(farm).concat()));
    let talk = "A: Are we there yet?\nB: No.\n".repeat(40) + "A: Are we there now?\nB: Yes.\n";
    texts.push(named("talk", talk));
    let mail = |name: &str| {
        format!(
            "Dear {name},\n\nthank you for your order. It will be sent to you within three days.\n\nYours,\nThe shop\n\n"
        )
    };
    texts.push(named("letters", ["Ann", "Bob", "Cem", "Dan", "Eva", "Fay"].map(mail).concat()));
    let grows = |n: usize| format!("{}\n", "so ".repeat(n) + "good");
    texts.push(named("growing lines", (1..80).map(grows).collect::<String>()));
    let pyramid = |n: usize| format!("{}{}\n", " ".repeat(40 - n), "* ".repeat(n));
    texts.push(named("pyramid of stars", (1..40).map(pyramid).collect::<String>()));
    texts
}
