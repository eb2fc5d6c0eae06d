//! What an Edge writes itself, on every surface and for every kind of provider, judged by the rules that all clients of
//! api.md §1.9 can live with.

use anyhow::{Context, bail, ensure};
use iop_tests::{
    Edge, EdgeYaml, Process, ProviderYaml, Site,
    http::{self, Answer, Body, PATIENCE, Raw},
    model::{ScriptedModel, Surface, plot},
    ollama::{Ollama, models::MODELS},
    played::Played,
    stream_rules::{Ended, Stream, check},
};
use serde_json::{Value, json};

use crate::support::{NODE, SOON, eventually, is_matrix_only, site, start_node, yaml};

/// Silence after which a comment comes, and an event without content.
const SILENCE: &str = "  keepalive: { comment_ms: 100, event_ms: 450 }\n";

/// Where a surface is, and who answers there with events of the Edge's own making.
struct Way {
    surface: Surface,
    /// In front of the names of models; Ollama's have nothing there.
    prefix: &'static str,
}

const WAYS: &[Way] = &[
    Way { surface: Surface::Chat, prefix: "" },
    Way { surface: Surface::Responses, prefix: "" },
    Way { surface: Surface::Responses, prefix: "chat/" },
    Way { surface: Surface::Messages, prefix: "" },
    Way { surface: Surface::Messages, prefix: "chat/" },
];

/// Edge and Node in front of a server that knows chat completions alone, and one that has a language of its own.
struct Stand {
    chat: ScriptedModel,
    ollama: Ollama,
    edge: Edge,
    _node: Process,
    site: Site,
}

impl Stand {
    fn start() -> anyhow::Result<Self> {
        Self::start_with(None)
    }

    fn start_with(more: impl IntoIterator<Item = ProviderYaml>) -> anyhow::Result<Self> {
        let (site, chat, ollama) = (site()?, ScriptedModel::start(&[Surface::Chat])?, Ollama::start()?);
        let of_chat: Vec<_> = plot::names().iter().map(|name| format!("chat/{name}")).collect();
        let native: Vec<_> = MODELS.iter().map(|model| model.name).collect();
        let provider = ProviderYaml {
            models: of_chat,
            capacity: 8,
            ..ProviderYaml::new("c1", NODE, &format!("{}/v1", chat.url()), "")
        };
        let file = EdgeYaml { openai: SILENCE.to_owned(), ..yaml() };
        let native = ProviderYaml { capacity: 8, ..ProviderYaml::ollama("o1", NODE, &ollama.url(), &native) };
        let file = more.into_iter().fold(file.with(provider).with(native), EdgeYaml::with);
        let edge = site.edge(&file)?;
        let (node, _) = start_node(&site, NODE, &edge.node)?;
        Ok(Self { chat, ollama, edge, _node: node, site })
    }

    fn ask(&self, way: &Way, model: &str, stream: bool) -> anyhow::Result<Raw> {
        let (path, body) = request(way.surface, &format!("{}{model}", way.prefix), stream);
        let mut client = Raw::connect(&self.edge.http)?;
        client.send(http::post(path, self.site.token(), body.to_string().as_bytes()))?;
        Ok(client)
    }

    /// A stream to its end, as the rules allow it.
    fn streamed(&self, way: &Way, model: &str, ended: Ended) -> anyhow::Result<Stream> {
        judged(way.surface, model, &self.ask(way, model, true)?.answer()?, ended)
    }
}

fn judged(surface: Surface, model: &str, answer: &Answer, ended: Ended) -> anyhow::Result<Stream> {
    let type_ = answer.header("content-type").unwrap_or_default();
    let is_stream = answer.status == 200 && type_.starts_with("text/event-stream");
    ensure!(is_stream, "{surface:?}, {model}: {}{}", answer.head, answer.text());
    ensure!(answer.header("content-encoding").is_none() && answer.header("content-length").is_none());
    ensure!(answer.whole == (ended == Ended::Well), "{surface:?}, {model}: whole: {}", answer.whole);
    match check(surface, &answer.body, ended) {
        Ok(stream) => Ok(stream),
        Err(what) => bail!("{surface:?}, {model}: {what}\n{}", answer.text()),
    }
}

/// A question with two tools.
fn request(surface: Surface, model: &str, stream: bool) -> (&'static str, Value) {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let functions = ["get_weather", "get_time"].map(|name| json!({ "name": name, "parameters": parameters }));
    let messages = json!([{ "role": "user", "content": "Hello" }]);
    match surface {
        Surface::Chat => {
            let tools = functions.map(|function| json!({ "type": "function", "function": function }));
            let usage = if stream { json!({ "include_usage": true }) } else { Value::Null };
            (
                "/v1/chat/completions",
                json!({ "model": model, "stream": stream, "messages": messages, "tools": tools, "stream_options": usage }),
            )
        }
        Surface::Responses => {
            let tools = functions.map(|mut function| {
                function["type"] = "function".into();
                function
            });
            ("/v1/responses", json!({ "model": model, "stream": stream, "input": "Hello", "tools": tools }))
        }
        Surface::Messages => {
            let tools = functions.map(|f| json!({ "name": f["name"], "input_schema": f["parameters"] }));
            (
                "/v1/messages",
                json!({ "model": model, "stream": stream, "max_tokens": 1000, "messages": messages, "tools": tools }),
            )
        }
    }
}

/// What each model's stream comes to.
fn models(way: &Way) -> Vec<(&'static str, Ended)> {
    let (well, failed) = if way.prefix.is_empty() {
        (
            &["tools", "tools-ids", "thinker", "no-tools", "large-calls", "many-calls", "quoting"][..],
            &["crashing", "ending"][..],
        )
    } else {
        (&["plain", "tools", "thinker", "thinking-tools", "short"][..], &["cut", "failing"][..])
    };
    let each = |models: &'static [&'static str], ended| models.iter().map(move |&model| (model, ended));
    each(well, Ended::Well).chain(each(failed, Ended::Failed)).collect()
}

#[test]
fn every_stream_of_the_edges_own_making_is_one_that_all_clients_read() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let stand = Stand::start()?;
    for way in WAYS {
        for (model, ended) in models(way) {
            stand.streamed(way, model, ended)?;
        }
    }
    ensure!(
        stand.chat.refused().is_empty() && stand.ollama.refused().is_empty(),
        "{:?}",
        stand.chat.refused()
    );
    Ok(())
}

#[test]
fn what_is_added_to_a_tunnel_that_breaks_is_one_event_that_all_clients_read() -> anyhow::Result<()> {
    let stand = Stand::start()?;
    let tunnel = Way { surface: Surface::Chat, prefix: "chat/" };
    let stream = stand.streamed(&tunnel, "cut", Ended::Failed)?;
    let last = &stream.events.last().context("events")?.data;
    ensure!(last["error"]["code"] == "upstream_error" && last["error"]["type"] == "server_error", "{last}");
    Ok(())
}

#[test]
fn silence_is_filled_between_events_and_the_stream_is_good_to_its_end() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let stand = Stand::start()?;
    for way in WAYS.iter().filter(|way| way.prefix.is_empty()) {
        stand.ollama.hold();
        let mut client = stand.ask(way, "tools", true)?;
        let head = client.read_head()?;
        let mut answer = Answer { status: 200, head, body: Vec::new(), whole: false };
        let mut body = Body::of(&answer);
        // The response has begun by what keeps it alive; more than one of each comes.
        loop {
            ensure!(
                client.read_more(&mut body)?,
                "the stream ended: {:?}",
                String::from_utf8_lossy(&body.bytes)
            );
            let so_far = check(way.surface, &body.bytes, Ended::NotYet).map_err(anyhow::Error::msg)?;
            let pings = so_far.events.iter().filter(|event| event.name == "ping").count();
            let beginning = if way.surface == Surface::Chat { 1 } else { 2 };
            if (so_far.comments >= 3 && so_far.events.len() > beginning + 2) || pings >= 3 {
                break;
            }
        }
        stand.ollama.let_all_go();
        while client.read_more(&mut body)? {}
        (answer.whole, answer.body) = (body.is_whole(), body.bytes);
        judged(way.surface, "held", &answer, Ended::Well)?;
    }
    Ok(())
}

/// Requests that came to an end of this kind, on all routes.
fn outcomes(edge: &Edge, outcome: &str) -> anyhow::Result<f64> {
    let text = http::get(&edge.ops, "/metrics", None)?.text();
    let with = format!("outcome=\"{outcome}\"");
    let of_it = |line: &&str| line.starts_with("iop_edge_requests_total{") && line.contains(&with);
    Ok(text.lines().filter(of_it).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// What a stream of this surface says last.
const fn last_words(surface: Surface) -> &'static str {
    match surface {
        Surface::Chat | Surface::Responses => "data: [DONE]\n\n",
        Surface::Messages => "{\"type\":\"message_stop\"}\n\n",
    }
}

/// Waits for the last words of one stream and leaves at once, by an end or by a reset.
fn leaves_at_the_end(client: Raw, surface: Surface, resets: bool) -> anyhow::Result<()> {
    let mut client = client;
    client.wait_for(last_words(surface))?;
    if resets {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let size = libc::socklen_t::try_from(size_of::<libc::linger>())?;
        // SAFETY: plain system call on a live descriptor, with a pointer to a live local of the given size.
        let set = unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&client.stream);
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size)
        };
        ensure!(set == 0, std::io::Error::last_os_error());
    }
    Ok(())
}

#[test]
fn a_client_that_leaves_at_the_last_event_has_had_everything() -> anyhow::Result<()> {
    // A provider whose answer goes on after `[DONE]`: the client has left before there can be an end.
    let tail = Played::start(|exchange| {
        exchange.begin(200, "text/event-stream")?;
        exchange.part(b"data: {\"choices\":[]}\n\ndata: [DONE]\n\n")?;
        exchange.is_left(PATIENCE)?;
        exchange.end()
    })?;
    let stand = Stand::start_with([ProviderYaml::new("t1", NODE, &format!("{}/v1", tail.url()), "tail")])?;
    let mut streams = 0.0;
    for resets in [false, true] {
        let tunnel = Way { surface: Surface::Chat, prefix: "" };
        for (way, model) in
            WAYS.iter().map(|way| (way, "tools")).chain([(&tunnel, "tail"), (&tunnel, "chat/plain")])
        {
            leaves_at_the_end(stand.ask(way, model, true)?, way.surface, resets)?;
            streams += 1.0;
        }
    }
    eventually(SOON, "all are counted", || {
        let [ok, gone] = ["ok", "client_gone"].map(|outcome| outcomes(&stand.edge, outcome));
        Ok(ok? + gone? >= streams)
    })?;
    let (ok, gone) = (outcomes(&stand.edge, "ok")?, outcomes(&stand.edge, "client_gone")?);
    ensure!((ok, gone) == (streams, 0.0), "{ok} ok, {gone} gone, of {streams}");
    Ok(())
}
