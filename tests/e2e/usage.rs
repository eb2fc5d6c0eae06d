//! What the Edge learns of tokens from answers that pass by (cases 69 to 72 of what users of such gateways report).

use iop_tests::{EdgeYaml, http};

use crate::support::{Bench, MODEL, SOON, eventually};

/// Tokens by kind, and answers by what is known of them.
fn counted(bench: &Bench) -> anyhow::Result<([f64; 2], [f64; 4])> {
    let tokens = |kind: &str| bench.metric(&format!("iop_edge_tokens_total{{kind=\"{kind}\"}}"));
    let answers = |state: &str| bench.metric(&format!("iop_edge_usage_total{{state=\"{state}\"}}"));
    Ok((
        [tokens("input")?, tokens("output")?],
        [answers("known")?, answers("partial")?, answers("zero")?, answers("unknown")?],
    ))
}

fn stream(include_usage: Option<bool>, script: &str) -> serde_json::Value {
    let mut body = http::chat_body(MODEL, true, script);
    if let Some(include) = include_usage {
        body["stream_options"] = serde_json::json!({ "include_usage": include });
    }
    body
}

#[test]
fn a_stream_counts_what_the_same_answer_in_one_piece_does_and_silence_is_not_zero() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let ask = |body: &serde_json::Value| http::chat(&bench.edge.http, bench.site.token(), body);
    let script = "events=7 split=byte";
    let answer = ask(&http::chat_body(MODEL, false, script))?;
    let usage = answer.json()?["usage"].clone();
    let (input, output) =
        (usage["prompt_tokens"].as_f64().unwrap(), usage["completion_tokens"].as_f64().unwrap());
    let whole = ([input, output], [1.0, 0.0, 0.0, 0.0]);
    eventually(SOON, "the answer is counted", || Ok(counted(&bench)? == whole))?;

    let streamed = ask(&stream(Some(true), script))?;
    let chunk = streamed.events().into_iter().rev().nth(1).unwrap_or_default();
    assert!(streamed.is_done() && chunk.contains("\"choices\":[]"), "{chunk}");
    let chunk: serde_json::Value = serde_json::from_str(&chunk)?;
    let (more_input, more_output) = (
        chunk["usage"]["prompt_tokens"].as_f64().unwrap(),
        chunk["usage"]["completion_tokens"].as_f64().unwrap(),
    );
    assert_eq!(more_output, output);
    let both = ([input + more_input, output + more_output], [2.0, 0.0, 0.0, 0.0]);
    eventually(SOON, "the stream is counted", || Ok(counted(&bench)? == both))?;
    let fields = format!("input_tokens={more_input} output_tokens={more_output}");
    eventually(SOON, &fields, || Ok(bench.edge.process.text().contains(&fields)))?;

    // Nothing said, and an answer that breaks off.
    assert!(ask(&stream(None, "events=7"))?.is_done());
    assert!(!ask(&stream(Some(true), "events=7 truncate-after=3"))?.is_done());
    eventually(SOON, "both are counted", || Ok(counted(&bench)? == (both.0, [2.0, 1.0, 0.0, 1.0])))?;
    eventually(SOON, "both are logged", || {
        let log = bench.edge.process.text();
        Ok(log.contains("usage=\"unknown\"") && log.contains("usage=\"partial\""))
    })?;
    bench.settles()
}

/// An answer without what differs from one request to the next.
fn without_ids(answer: &http::Answer) -> String {
    let text = answer.text();
    let id = text.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("none");
    let text = text.replace(id, "ID");
    let created = text.split("\"created\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("none");
    text.replace(&format!("\"created\":{created}"), "\"created\":0")
}

#[test]
fn an_edge_that_has_to_know_asks_and_keeps_the_answer_to_itself() -> anyhow::Result<()> {
    let bench = Bench::with(
        &[],
        |p| p,
        |edge| EdgeYaml { openai: "  usage: { require: true }\n".to_owned(), ..edge },
    )?;
    let ask = |body: &serde_json::Value| http::chat(&bench.edge.http, bench.site.token(), body);
    for (count, split) in ["split=whole", "split=byte", "split=7", "crlf"].into_iter().enumerate() {
        let script = format!("events=5 {split}");
        let never = ask(&stream(None, &format!("{script} usage=never")))?;
        assert!(never.is_done() && !never.text().contains("\"usage\""), "{}", never.text());
        for include in [None, Some(false)] {
            let hidden = ask(&stream(include, &script))?;
            assert!(hidden.is_done());
            assert_eq!(without_ids(&hidden), without_ids(&never), "{split} {include:?}");
        }
        let asked = ask(&stream(Some(true), &script))?;
        assert!(asked.is_done() && asked.text().contains("\"choices\":[]"), "{}", asked.text());
        let known = 3.0 * (count as f64 + 1.0);
        eventually(SOON, "known", || Ok(counted(&bench)?.1[0] == known))?;
    }
    // What cannot be asked differently is left alone.
    let whole = ask(&http::chat_body(MODEL, false, "events=5"))?;
    assert!(whole.json()?["usage"].is_object());
    bench.settles()
}
