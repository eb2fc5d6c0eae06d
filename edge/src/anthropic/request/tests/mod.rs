mod accepted;
mod mutated;
mod recorded;
mod refused;

use serde_json::{Value, json};

use super::*;

/// A request with these members beside the usual ones; one that is `absent` is left out.
fn with(members: &Value) -> Vec<u8> {
    let mut body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    let body_members = body.as_object_mut().unwrap();
    for (key, value) in members.as_object().unwrap() {
        body_members.insert(key.clone(), value.clone());
    }
    body_members.retain(|_, value| *value != "absent");
    body.to_string().into_bytes()
}

fn asked(members: &Value) -> Asked {
    read(&with(members)).unwrap_or_else(|error| panic!("{members}: {error:?}"))
}

/// A message of the user with one block, behind another message.
fn shown(block: Value) -> Value {
    json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "user", "content": [block]}])
}
