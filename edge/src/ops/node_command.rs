//! `GET /node-command` of the admin socket: a query to one Node (CMD-1), and its answer. What a Node says here is for people; only
//! control's own questions lower or restore a provider.

use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use dataplane::{clock, local::Queue, time::before};
use proto::limits::{ID_BYTES_MAX, TARGET_BYTES_MAX};
use serde::{Deserialize, Serialize};

use super::{answer::Answer, query};
use crate::{
    mail::{NodeQuestion, ToShard, Told},
    shard_state::ShardState,
};

/// The path.
pub const PATH: &str = "/node-command";
/// How long a Node may take. It answers by itself within 6 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Node ID.
    pub node: String,
    /// The command.
    pub command: String,
    /// What the Node says.
    pub fields: BTreeMap<String, String>,
}

/// What a query asks of which Node.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    node: String,
    command: String,
    adapter: String,
    target: String,
    arguments: BTreeMap<String, String>,
}

/// Answers the query of a request.
pub(super) async fn answer(state: &Rc<ShardState>, query: &str) -> Answer {
    let asked = match read(query) {
        Ok(asked) => asked,
        Err(words) => return Answer::text(400, &words),
    };
    if state.settings.node(&asked.node).is_none() {
        let known: Vec<_> = state.settings.nodes.iter().map(|node| node.id.as_str()).collect();
        let (node, known) = (&asked.node, known.join(", "));
        return Answer::text(404, &format!("the configuration has no node `{node}`; it has {known}"));
    }
    let (node, command) = (asked.node.clone(), asked.command.clone());
    match ask(state, asked).await {
        Told::Answer(Ok(fields)) => Answer::json(&Document { node, command, fields }),
        Told::Answer(Err(words)) => Answer::text(502, &format!("node `{node}`: {words}")),
        Told::NotHere => {
            Answer::text(409, &format!("node `{node}` is not connected, or not ready: see `iop-edge status`"))
        }
        Told::Busy => Answer::text(429, &format!("too many commands to node `{node}` at one time")),
        Told::Lost => Answer::text(502, &format!("the connection of node `{node}` ended before its answer")),
        Told::Late => {
            let seconds = PATIENCE.as_secs();
            Answer::text(504, &format!("node `{node}` did not answer within {seconds} s"))
        }
    }
}

fn read(query: &str) -> Result<Asked, String> {
    let mut pairs = query::decode(query).ok_or("the query is not well-formed")?;
    let mut take = |key: &str, max: usize| {
        let value = pairs.remove(key).unwrap_or_default();
        if value.len() > max { Err(format!("{key}: expected at most {max} bytes")) } else { Ok(value) }
    };
    let asked = Asked {
        node: take("node", ID_BYTES_MAX)?,
        command: take("command", ID_BYTES_MAX)?,
        adapter: take("adapter", ID_BYTES_MAX)?,
        target: take("target", TARGET_BYTES_MAX)?,
        arguments: match take("operation", ID_BYTES_MAX)? {
            operation if operation.is_empty() => BTreeMap::new(),
            operation => BTreeMap::from([("operation".to_owned(), operation)]),
        },
    };
    match pairs.into_keys().next() {
        Some(other) => Err(format!("unknown key {other:?}")),
        None => Ok(asked),
    }
}

/// Asks every shard, of which one at most has the Node's connection.
async fn ask(state: &Rc<ShardState>, asked: Asked) -> Told {
    let token = state.metrics.next_token();
    let waiter = Waiter::new(state, token);
    let node: Arc<str> = asked.node.as_str().into();
    for shard in 0..state.shards() {
        let question = NodeQuestion {
            token,
            from: state.index,
            node: Arc::clone(&node),
            command: asked.command.clone(),
            adapter: asked.adapter.clone(),
            target: asked.target.clone(),
            arguments: asked.arguments.clone(),
        };
        state.post(shard, ToShard::NodeQuestion(Box::new(question)));
        state.ring(shard);
    }
    let told = async {
        let mut elsewhere = 0;
        loop {
            match waiter.answers.pop().await {
                Told::NotHere if elsewhere + 1 < state.shards() => elsewhere += 1,
                told => return told,
            }
        }
    };
    before(clock::now() + PATIENCE, told).await.unwrap_or(Told::Late)
}

/// A place in the shard's table of those who wait.
struct Waiter<'a> {
    state: &'a ShardState,
    token: u64,
    answers: Rc<Queue<Told>>,
}

impl<'a> Waiter<'a> {
    fn new(state: &'a ShardState, token: u64) -> Self {
        let answers = Rc::new(Queue::new());
        state.questions.borrow_mut().insert(token, Rc::clone(&answers));
        Self { state, token, answers }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.state.questions.borrow_mut().remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_what_is_asked_and_nothing_else() {
        let asked = read("node=box1&command=ollama&adapter=o&target=q%2F3&operation=show").unwrap();
        assert_eq!((asked.node.as_str(), asked.target.as_str()), ("box1", "q/3"));
        assert_eq!(asked.arguments["operation"], "show");
        assert!(read("node=box1&command=transport").unwrap().arguments.is_empty());
        for (query, words) in [
            ("node=a&path=/api/pull", "unknown key \"path\""),
            ("node", "the query is not well-formed"),
            ("node=a&node=b", "the query is not well-formed"),
        ] {
            assert_eq!(read(query).unwrap_err(), words, "{query}");
        }
        let long = format!("node={}", "a".repeat(ID_BYTES_MAX + 1));
        assert!(read(&long).unwrap_err().contains("at most"));
    }
}
