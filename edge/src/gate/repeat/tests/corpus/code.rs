//! Programs and markup.

use super::{Named, named};

/// Lines and blocks as programs have them, and how often.
const EQUAL: &[(&str, &str, usize)] = &[
    ("closing braces", "}\n", 300),
    ("closing braces with indent", "        }\n", 200),
    ("closing tags", "</div>\n", 200),
    ("asserts", "    assert!(true);\n", 150),
    ("asserts of python", "    assert result == expected\n", 120),
    ("equal imports", "import os\n", 150),
    ("pass", "    pass\n", 200),
    ("breaks", "            break;\n", 150),
    ("cases that fall through", "        case 0:\n            break;\n", 100),
    ("returns", "    return false;\n", 150),
    ("elses", "    } else {\n        return null;\n    }\n", 80),
    ("empty functions", "def test():\n    pass\n\n", 100),
    ("prints", "print('hello')\n", 250),
    ("console logs", "console.log(\"here\");\n", 250),
    ("nops", "    nop\n", 500),
    ("assembly", "    mov eax, 0\n    push eax\n", 150),
    ("equal increments", "x += 1\n", 500),
    ("turtle", "forward(10)\nright(90)\n", 180),
    ("brainfuck", "++++++++[>++++++++<-]>.", 150),
    ("pluses of brainfuck", "+", 1000),
    ("minified", "function(){return!1},", 200),
    ("minified css", ".a{margin:0;padding:0}", 200),
    ("css properties", "  margin: 0;\n  padding: 0;\n", 120),
    ("table rows of html", "  <tr><td></td><td></td><td></td></tr>\n", 100),
    ("list items of html", "<li><a href=\"#\">Link</a></li>\n", 100),
    ("line breaks of html", "<br>\n", 300),
    ("spaces of html", "&nbsp;", 300),
    ("options", "<option value=\"\">--</option>\n", 100),
    ("records of xml", "<record>\n  <id>0</id>\n  <value/>\n</record>\n", 90),
    ("attributes", "xmlns:a=\"urn:x\" ", 100),
    (
        "cards",
        "<div class=\"card\">\n  <img src=\"placeholder.png\" alt=\"\">\n  <h3>Card title</h3>\n  <p>Lorem ipsum dolor sit amet, \
         consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua.</p>\n  \
         <a class=\"button\" href=\"#\">Read more</a>\n</div>\n",
        20,
    ),
    ("comment rulers", "// ----------------------------------------------------------------\n", 60),
    ("comments", "# TODO: implement\n", 120),
    ("makefile", ".PHONY: all\nall:\n\t@echo ok\n", 80),
    ("yaml items", "- name: placeholder\n  value: null\n", 120),
    ("toml tables", "[[item]]\nname = \"\"\ncount = 0\n\n", 120),
    ("env", "KEY=value\n", 200),
    ("docker", "RUN apt-get update && apt-get install -y curl\n", 60),
    ("shell", "sleep 1; echo .\n", 150),
    ("regex", "(?:[a-z]+)|", 200),
    ("backslashes", "\\\\", 500),
    ("latex hlines", "\\hline\n", 250),
    ("latex dots", "\\cdots & ", 200),
    ("lisp", "(cons 1 ", 300),
    ("parentheses", ")", 400),
    ("getters", "    int getValue() { return this.value; }\n", 80),
    ("struct fields", "    pub reserved: u32,\n", 120),
    ("vertices", "    glVertex3f(0.0f, 0.0f, 0.0f);\n", 150),
    ("verilog", "    q <= 1'b0;\n", 200),
    ("tool schema members", "\"x\": {\"type\": \"string\", \"description\": \"\"}, ", 80),
    ("sequence diagram", "A->>B: ping\nB-->>A: pong\n", 120),
    ("mermaid", "    A --> B\n", 150),
    ("empty cells of a notebook", "{\"cell_type\": \"code\", \"metadata\": {}, \"source\": []},\n", 90),
];

pub(super) fn texts() -> Vec<Named> {
    let mut texts: Vec<Named> =
        EQUAL.iter().map(|(name, unit, times)| named(*name, unit.repeat(*times))).collect();
    let counted = |name: &str, times: usize, line: &dyn Fn(usize) -> String| {
        named(name, (0..times).map(line).collect::<String>())
    };
    texts.extend([
        counted("switch", 300, &|i| format!("        case {i}:\n            return \"{i}\";\n")),
        counted("constants", 400, &|i| format!("const VALUE_{i}: u32 = {i};\n")),
        counted("tests", 150, &|i| format!("#[test]\nfn case_{i}() {{\n    assert_eq!(f({i}), {i});\n}}\n\n")),
        counted("css classes", 200, &|i| format!(".col-{i} {{ width: {i}%; }}\n")),
        counted("tool schemas", 60, &|i| {
            format!("{{\"type\":\"function\",\"function\":{{\"name\":\"t{i}\",\"parameters\":{{\"type\":\"object\"}}}}}},\n")
        }),
        counted("nested ifs", 60, &|i| format!("{}if (a{i}) {{\n", "    ".repeat(i))),
        counted("ends of nested ifs", 60, &|i| format!("{}}}\n", "    ".repeat(60 - i))),
        counted("routes", 150, &|i| format!("app.get('/api/v1/items/{i}', handler);\n")),
        counted("enum", 400, &|i| format!("    Variant{i},\n")),
    ]);
    texts
}
