//! `mknod`: makes device nodes, named pipes and sockets.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, with_one};
use crate::location::Location;
use crate::mode::ModeChange;
use drystone::vfs::{DeviceNumber, NewNode};

/// Make device nodes, named pipes and sockets
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Nothing is opened: any node can be made without being root.

Examples:
  drystone mknod disk.img:/dev/null c 1 3 -m 666
  drystone mknod disk.img:/dev/vda b 254 0
  drystone mknod disk.img:/run/pipe p")]
pub struct Arguments {
    /// The node to make.
    #[arg(value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    place: Location,
    /// b for a block device, c for a character device, p for a named pipe, s for a socket.
    #[arg(value_name = "TYPE")]
    node_type: NodeType,
    /// The major number of a device.
    #[arg(value_parser = parse_number)]
    major: Option<u32>,
    /// The minor number of a device.
    #[arg(value_parser = parse_number)]
    minor: Option<u32>,
    /// Permissions of the new node.
    #[arg(short, long, default_value = "644", value_parser = ModeChange::parse)]
    mode: ModeChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum NodeType {
    #[value(name = "b", help = "block device")]
    Block,
    #[value(name = "c", alias = "u", help = "character device")]
    Character,
    #[value(name = "p", help = "named pipe")]
    Pipe,
    #[value(name = "s", help = "socket")]
    Socket,
}

/// A number as mknod takes it.
fn parse_number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("'{text}' isn't a number"))
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let numbers = (arguments.major, arguments.minor);
    let device = match (arguments.node_type, numbers) {
        (NodeType::Block | NodeType::Character, (Some(major), Some(minor))) => {
            DeviceNumber { major, minor }
        }
        (NodeType::Block | NodeType::Character, _) => {
            return Err(Failure::Usage("a device has a major and a minor number".to_owned()));
        }
        (_, (None, None)) => DeviceNumber { major: 0, minor: 0 },
        _ => return Err(Failure::Usage("only a device has numbers".to_owned())),
    };
    let node = match arguments.node_type {
        NodeType::Block => NewNode::BlockDevice(device),
        NodeType::Character => NewNode::CharacterDevice(device),
        NodeType::Pipe => NewNode::Fifo,
        NodeType::Socket => NewNode::Socket,
    };
    let Location { image, path } = &arguments.place;
    with_one(image, Intent::Change, global, |tree| {
        let permissions = arguments.mode.apply(0o666, false);
        let made = tree.fs.make_node(path, node, u32::from(permissions));
        Ok(made.map_err(|error| tree.error_making(path, error, ""))?)
    })
}
