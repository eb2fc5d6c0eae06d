//! The newest `openai` SDK where each of its requests comes first to a provider that says nothing: it notices nothing of that.

use std::time::Duration;

use iop_tests::{EdgeYaml, ProviderYaml, played::Played};
use serde_json::json;

use crate::{
    sdk::{python, run},
    support::{Bench, MODEL, NODE},
};

/// Longer than the SDK's checks take.
const SILENCE: Duration = Duration::from_secs(120);

// req: REC-1, REC-2
#[test]
fn the_openai_sdk_notices_nothing_of_a_provider_that_is_silent() -> anyhow::Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let silent = Played::start(|exchange| {
        if exchange.path == "/v1/models" {
            return exchange.answer_json(200, &json!({ "object": "list", "data": [{ "id": MODEL }] }));
        }
        exchange.is_left(SILENCE)?;
        anyhow::bail!("it said nothing")
    })?;
    let first = ProviderYaml {
        extra: "response_stall_timeout_ms: 200".to_owned(),
        ..ProviderYaml::new("silent", NODE, &format!("{}/v1", silent.url()), MODEL)
    };
    let bench = Bench::with(
        &[],
        |provider| ProviderYaml { extra: "priority: 1".to_owned(), ..provider },
        |edge| EdgeYaml { limits: "body_bytes: 200000".to_owned(), ..edge.with(first) },
    )?;
    run(&python, "sdk/openai_client.py", &bench.edge.http, &[bench.site.token(), MODEL, "scripted"])?;
    bench.settles()?;
    let recovered =
        "iop_edge_liveness_recovery_results_total{result=\"recovered\",strategy=\"exact_replay\"}";
    let recovered = bench.metric(recovered)?;
    assert!(recovered >= 3.0, "{recovered} recoveries");
    Ok(())
}
