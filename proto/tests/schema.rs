//! The schema changes only by addition (WIR-7), and some of it is pinned (WIR-4).

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Messages and enums of the schema with their names from the package on.
#[derive(Default)]
struct Schema {
    messages: Vec<(String, DescriptorProto)>,
    enums: Vec<(String, EnumDescriptorProto)>,
}

impl Schema {
    fn load() -> Self {
        let folder = format!("{ROOT}/schema");
        let files =
            protox::compile([format!("{folder}/runtime.proto")], [folder]).expect("the schema compiles");
        let file = files.file.into_iter().next().expect("there is one file");
        let mut schema = Self::default();
        file.message_type.into_iter().for_each(|message| schema.add("", message));
        schema.enums.extend(file.enum_type.into_iter().map(|kind| (kind.name().to_owned(), kind)));
        schema
    }

    fn add(&mut self, parent: &str, message: DescriptorProto) {
        let name = if parent.is_empty() {
            message.name().to_owned()
        } else {
            format!("{parent}.{}", message.name())
        };
        for nested in message.nested_type.clone() {
            self.add(&name, nested);
        }
        for kind in message.enum_type.clone() {
            self.enums.push((format!("{name}.{}", kind.name()), kind));
        }
        self.messages.push((name, message));
    }

    fn message(&self, name: &str) -> &DescriptorProto {
        &self
            .messages
            .iter()
            .find(|(other, _)| other == name)
            .unwrap_or_else(|| panic!("no message {name}"))
            .1
    }

    fn field(&self, message: &str, field: &str) -> &FieldDescriptorProto {
        let fields = &self.message(message).field;
        fields
            .iter()
            .find(|other| other.name() == field)
            .unwrap_or_else(|| panic!("no field {message}.{field}"))
    }

    /// One line for each field and enum value: `Message.field number type label`.
    fn lines(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for (name, message) in &self.messages {
            for field in &message.field {
                let label = label(message, field);
                lines.insert(format!(
                    "{name}.{} {} {} {label}",
                    field.name(),
                    field.number(),
                    type_name(field)
                ));
            }
        }
        for (name, kind) in &self.enums {
            lines.extend(
                kind.value
                    .iter()
                    .map(|value| format!("{name}.{} {} enum value", value.name(), value.number())),
            );
        }
        lines
    }
}

fn type_name(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => field.type_name().trim_start_matches(".iop.runtime.v1.").to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

fn label(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    match (field.label(), field.oneof_index) {
        (Label::Repeated, _) => "repeated".to_owned(),
        _ if field.proto3_optional() => "optional".to_owned(),
        (_, Some(index)) => {
            let index = usize::try_from(index).expect("an index is not negative");
            format!("oneof:{}", message.oneof_decl[index].name())
        }
        _ => "singular".to_owned(),
    }
}

// req: WIR-7
#[test]
fn schema_differs_from_its_snapshot_in_nothing() {
    let path = format!("{ROOT}/schema/runtime.descriptor.txt");
    let text = fs::read_to_string(&path).unwrap();
    let recorded: BTreeSet<String> =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect();
    let current = Schema::load().lines();

    let mut report = String::new();
    for line in recorded.difference(&current) {
        writeln!(report, "GONE OR CHANGED  {line}").unwrap();
    }
    for line in current.difference(&recorded) {
        writeln!(report, "NOT RECORDED     {line}").unwrap();
    }
    assert!(
        report.is_empty(),
        "schema/runtime.proto is not what schema/runtime.descriptor.txt records:\n{report}\
         A recorded line never changes and never goes: deployed peers rely on it. Restore the number, type and name, and\n\
         change the schema by addition only: a new field takes a number that its message never used, a new enum value a\n\
         new number, a new envelope member a new message. Then add the NOT RECORDED lines to the snapshot."
    );
}

// req: WIR-7
#[test]
fn snapshot_gives_each_number_once() {
    let text = fs::read_to_string(format!("{ROOT}/schema/runtime.descriptor.txt")).unwrap();
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split(' ');
        let (path, number) = (words.next().unwrap(), words.next().unwrap());
        let (owner, _) = path.rsplit_once('.').unwrap();
        assert!(seen.insert((owner, number)), "{owner} gives number {number} twice");
    }
}

// req: WIR-4
#[test]
fn pinned_fields_have_their_numbers_and_types() {
    let schema = Schema::load();
    assert_eq!(schema.field("ProviderTunnelRequest", "operation").number(), 13);
    assert_eq!(schema.field("ProviderTunnelRequest", "operation").r#type(), Type::String);
    for (message, number) in [("RunEvent", 13), ("ProviderTunnelFrame", 15)] {
        let failure = schema.field(message, "failure");
        assert_eq!(failure.number(), number, "{message}.failure");
        assert_eq!(type_name(failure), "ExecutionFailure", "{message}.failure");
    }
    for message in ["RunRequest", "ProviderTunnelRequest"] {
        assert_eq!(schema.field(message, "response_stall_timeout_ms").r#type(), Type::Int64, "{message}");
    }
}

// req: WIR-1
#[test]
fn one_envelope_carries_every_exchange() {
    let schema = Schema::load();
    let members: Vec<&str> =
        schema.message("Envelope").field.iter().map(FieldDescriptorProto::name).collect();
    for member in [
        "register_request",
        "node_ready_request",
        "run_request",
        "provider_tunnel_request",
        "cancel_request",
        "node_command_request",
        "node_config_refresh_request",
        "heartbeat_ping",
    ] {
        assert!(members.contains(&member), "Envelope has no {member}");
    }
    assert!(schema.message("Envelope").field.iter().all(|field| field.oneof_index == Some(0)));
}

// req: WIR-5
#[test]
fn connection_generation_is_no_wire_field() {
    let schema = Schema::load();
    let mut names: Vec<String> = Vec::new();
    for (path, message) in &schema.messages {
        names.push(path.clone());
        names.extend(message.field.iter().map(|field| field.name().to_owned()));
        names.extend(message.oneof_decl.iter().map(|oneof| oneof.name().to_owned()));
    }
    for (path, kind) in &schema.enums {
        names.push(path.clone());
        names.extend(kind.value.iter().map(|value| value.name().to_owned()));
    }
    for name in names.iter().filter(|name| name.to_lowercase().contains("generation")) {
        assert!(
            matches!(name.as_str(), "config_generation" | "projection_generation"),
            "{name} must not be on the wire"
        );
    }
}

// req: REG-10
#[test]
fn node_configuration_holds_no_store_and_no_directory() {
    let schema = Schema::load();
    let mut open = vec!["NodeConfigPayload".to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        for field in &schema.message(&name).field {
            let words: Vec<&str> = field.name().split('_').collect();
            for word in
                ["store", "storage", "dir", "directory", "workdir", "cwd", "workspace", "path", "root"]
            {
                assert!(!words.contains(&word), "{name}.{} hands a location to the Node", field.name());
            }
            if field.r#type() == Type::Message && seen.insert(type_name(field)) {
                open.push(type_name(field));
            }
        }
    }
    assert!(
        seen.contains("NodeRuntimeConfig") && seen.contains("CliAdapterConfig"),
        "the walk reached {seen:?}"
    );
}

// req: WIR-10
#[test]
fn every_message_of_a_run_begins_with_its_stream_number() {
    let schema = Schema::load();
    for message in [
        "RunRequest",
        "RunEvent",
        "ProviderTunnelRequest",
        "ProviderTunnelFrame",
        "RequestBodyChunk",
        "CancelRequest",
        "Credit",
    ] {
        let stream = schema.field(message, "stream");
        assert_eq!((stream.number(), stream.r#type()), (1, Type::Uint64), "{message}.stream");
    }
    for message in ["RequestBodyChunk", "Credit"] {
        let fields = &schema.message(message).field;
        assert!(fields.iter().all(|field| field.name() != "run_id"), "{message} needs no run_id");
    }
}

// req: WIR-8
#[test]
fn generated_code_is_built_from_the_schema_and_never_checked_in() {
    let mut open = vec![Path::new(ROOT).join("src"), Path::new(ROOT).join("schema")];
    let mut includes = 0;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for mark in
                ["prost::Message)", "prost::Message,", "prost::Oneof", "prost::Enumeration", "#[prost("]
            {
                assert!(!text.contains(mark), "{} holds generated code", path.display());
            }
            includes += text.matches("concat!(env!(\"OUT_DIR\"), \"/iop.runtime.v1.rs\")").count();
        }
    }
    assert_eq!(includes, 1, "one module includes what the build script generates");
}
