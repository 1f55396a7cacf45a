//! Probes of sockets.

use std::net::{IpAddr, SocketAddr as InetAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use nix::libc;
use serde_json::{Value, json};

use crate::commands::{number, text};
use crate::probe::Found;
use crate::probe_kernel::worked;
use crate::sys;

/// How long a connection may take before it counts as refused.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the probe if it is one of this file's.
pub(crate) fn run(what: &str, arguments: &Value) -> Result<Option<Found>, String> {
    Ok(Some(match what {
        "connect-tcp" => connect_tcp(inet(arguments)?),
        "bind-tcp" => bind_tcp(inet(arguments)?),
        "send-udp" => send_udp(inet(arguments)?),
        "connect-unix" => UnixStream::connect(text(arguments, "path")?).map(|_| Value::Null),
        "connect-abstract" => connect_abstract(text(arguments, "name")?),
        "own-abstract" => own_abstract(text(arguments, "name")?),
        "socketpair" => UnixStream::pair().map(|_| Value::Null),
        "socket-inet" => socket(libc::AF_INET, libc::SOCK_STREAM),
        "socket-netlink" => socket(libc::AF_NETLINK, libc::SOCK_RAW),
        "socket-packet" => socket(libc::AF_PACKET, libc::SOCK_RAW),
        "socket-vsock" => socket(libc::AF_VSOCK, libc::SOCK_STREAM),
        "socket-alg" => socket(libc::AF_ALG, libc::SOCK_SEQPACKET),
        _ => return Ok(None),
    }))
}

fn inet(arguments: &Value) -> Result<InetAddr, String> {
    let host: IpAddr = text(arguments, "host")?.parse().map_err(|_| "`host` must be an IP address")?;
    let port = number(arguments, "port").unwrap_or(0);
    Ok(InetAddr::new(host, u16::try_from(port).map_err(|cause| cause.to_string())?))
}

fn connect_tcp(address: InetAddr) -> Found {
    TcpStream::connect_timeout(&address, PATIENCE).map(|_| Value::Null)
}

fn bind_tcp(address: InetAddr) -> Found {
    Ok(json!(TcpListener::bind(address)?.local_addr()?.port()))
}

fn send_udp(address: InetAddr) -> Found {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(any)?.send_to(b"hostile", address).map(|sent| json!(sent))
}

fn connect_abstract(name: &str) -> Found {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(|_| Value::Null)
}

fn own_abstract(name: &str) -> Found {
    let address = SocketAddr::from_abstract_name(name)?;
    let _listener = UnixListener::bind_addr(&address)?;
    UnixStream::connect_addr(&address).map(|_| Value::Null)
}

fn socket(family: i32, kind: i32) -> Found {
    worked(sys::socket(family, kind, 0))
}
