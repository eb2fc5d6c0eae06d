//! What each command of `iop-edge pki` does and says.

use std::{io::Write, path::Path};

use proto::identity::{Name, Role, TrustDomain, WorkloadId};

use super::{
    PkiError,
    authority::{Authority, Issued},
    bundle,
    command::{Command, Init, Inspect, Issue, IssueEdge, IssueNode},
    inspect::{inspect, rfc3339},
    store::{Batch, Directory, PUBLIC_MODE, SECRET_MODE, Settings, read},
};

/// Runs one command at `now` (seconds since the epoch) and reports to `out`.
pub(super) fn execute(command: Command, now: u64, out: &mut impl Write) -> Result<(), PkiError> {
    match command {
        Command::Init(args) => init(args, now, out),
        Command::Issue(Issue::Edge(args)) => issue_edge(args, now, out),
        Command::Issue(Issue::Node(args)) => issue_node(args, now, out),
        Command::Inspect(args) => inspect_file(&args, now, out),
    }
}

fn init(args: Init, now: u64, out: &mut impl Write) -> Result<(), PkiError> {
    let directory = Directory::new(args.dir);
    let certificates = [Role::Edge, Role::Node].map(|role| directory.ca_certificate(role));
    let keys = [Role::Edge, Role::Node].map(|role| directory.ca_key(role));
    let (edge_certificate, edge_key) = (directory.edge_certificate(), directory.edge_key());
    let settings_path = directory.settings_path();
    let names: Vec<&Path> = certificates
        .iter()
        .chain(&keys)
        .chain([&edge_certificate, &edge_key, &settings_path])
        .map(AsRef::as_ref)
        .collect();
    let mut batch = Batch::begin(&names)?;

    let (edge_ca, edge_ca_files) = Authority::create(Role::Edge, &args.trust_domain, now)?;
    let (_, node_ca_files) = Authority::create(Role::Node, &args.trust_domain, now)?;
    let edge = edge_ca.issue(&workload(&args.trust_domain, Role::Edge, &args.edge), now)?;
    let settings = Settings { edge: args.edge, trust_domain: args.trust_domain, advertise: args.advertise };

    directory.create()?;
    for ((certificate, key), files) in certificates.iter().zip(&keys).zip([&edge_ca_files, &node_ca_files]) {
        write_pair(&mut batch, certificate, key, files)?;
    }
    write_pair(&mut batch, &edge_certificate, &edge_key, &edge)?;
    batch.write(&settings_path, &settings.to_yaml(), PUBLIC_MODE)?;
    batch.keep();

    let dir = directory.path().display();
    let (edge_ca_end, node_ca_end) = (rfc3339(edge_ca_files.not_after), rfc3339(node_ca_files.not_after));
    let (name, edge_end) = (settings.edge, rfc3339(edge.not_after));
    let advertise = if settings.advertise.is_none() { " --advertise HOST:PORT" } else { "" };
    write!(
        out,
        "wrote {dir}/edge-ca.crt, edge-ca.key  the CA of Edges, trusted by Nodes; until {edge_ca_end}\n\
         wrote {dir}/node-ca.crt, node-ca.key  the CA of Nodes, trusted by the Edge; until {node_ca_end}\n\
         wrote {dir}/edge.crt, edge.key        Edge {name}; until {edge_end}\n\
         wrote {dir}/pki.yaml                  names for later certificates\n\
         \n\
         Next: name every Node in edge.yaml under nodes: and make its join file:\n  \
         iop-edge pki issue node NAME --dir {dir} --bundle NAME.join.yaml{advertise}\n\
         The Edge itself needs edge.crt, edge.key and node-ca.crt only. Keep the two CA keys on another machine\n\
         if you can: node-ca.key can make any Node, edge-ca.key can pose as the Edge.\n"
    )?;
    Ok(())
}

fn issue_node(args: IssueNode, now: u64, out: &mut impl Write) -> Result<(), PkiError> {
    let mut batch = Batch::begin(&[&args.bundle])?;
    let directory = Directory::new(args.dir);
    let settings = directory.settings()?;
    let address = args.advertise.or(settings.advertise).ok_or(PkiError::NoAdvertise)?;
    let edge = args.edge.unwrap_or(settings.edge);
    let authority = load(&directory, Role::Node)?;
    let edge_ca = read(&directory.ca_certificate(Role::Edge))?;
    let issued = authority.issue(&workload(&settings.trust_domain, Role::Node, &args.name), now)?;
    let text = bundle::to_yaml(&args.name, &edge, &address, &issued, &String::from_utf8_lossy(&edge_ca));
    batch.write(&args.bundle, &text, SECRET_MODE)?;
    batch.keep();

    let (file, node, end) = (args.bundle.display(), args.name, rfc3339(issued.not_after));
    write!(
        out,
        "wrote {file}  join file of Node {node}, which dials {address} and accepts Edge {edge}; until {end}\n\
         \n\
         Next: bring it to the Node's host over a channel you trust, for it holds a private key, and there:\n  \
         iop-node run --join {file}\n\
         The Edge lets the Node in once edge.yaml names it: nodes: [{{ id: {node} }}]\n"
    )?;
    Ok(())
}

fn issue_edge(args: IssueEdge, now: u64, out: &mut impl Write) -> Result<(), PkiError> {
    let mut batch = Batch::begin(&[&args.out_cert, &args.out_key])?;
    let directory = Directory::new(args.dir);
    let settings = directory.settings()?;
    let authority = load(&directory, Role::Edge)?;
    let issued = authority.issue(&workload(&settings.trust_domain, Role::Edge, &args.name), now)?;
    write_pair(&mut batch, &args.out_cert, &args.out_key, &issued)?;
    batch.keep();

    let (certificate, key) = (args.out_cert.display(), args.out_key.display());
    let (name, end) = (args.name, rfc3339(issued.not_after));
    write!(
        out,
        "wrote {certificate}, {key}  Edge {name}; until {end}\n\
         \n\
         Next: give both files in edge.yaml under identity: and set edge.name to {name}.\n\
         Its Nodes need join files made with --edge {name}.\n"
    )?;
    Ok(())
}

fn inspect_file(args: &Inspect, now: u64, out: &mut impl Write) -> Result<(), PkiError> {
    let report = inspect(&read(&args.file)?, now)?;
    out.write_all(report.text.as_bytes())?;
    if report.unfit > 0 { Err(PkiError::Unfit(report.unfit)) } else { Ok(()) }
}

fn load(directory: &Directory, role: Role) -> Result<Authority, PkiError> {
    let certificate = read(&directory.ca_certificate(role))?;
    let key = read(&directory.ca_key(role))?;
    Ok(Authority::load(&certificate, &key)?)
}

/// The key first: a certificate without its key is of no use, and a key alone does no harm.
fn write_pair(batch: &mut Batch, certificate: &Path, key: &Path, issued: &Issued) -> Result<(), PkiError> {
    batch.write(key, issued.key.expose(), SECRET_MODE)?;
    batch.write(certificate, &issued.certificate, PUBLIC_MODE)?;
    Ok(())
}

fn workload(trust_domain: &TrustDomain, role: Role, name: &Name) -> WorkloadId {
    WorkloadId::new(trust_domain.clone(), role, name.clone())
}
