//! Sockets: whom a plugin reaches without a network grant, and what stays shut with one.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use nix::errno::Errno;
use plugind_integration::{Bundle, Installed, Outside, user};
use serde_json::{Value, json};

/// A plugin that was granted the host's network.
fn with_network(bundle: Bundle) -> Installed {
    let plugin = Installed::new(bundle.asking(json!({"network": {"mode": "host"}})));
    plugin.permit("grant", &["network:host"]).success();
    plugin
}

fn connect(host: &str, port: u16) -> Value {
    json!({"what": "connect-tcp", "host": host, "port": port})
}

#[test]
fn tcp_servers_of_the_host_are_out_of_reach() {
    let plugin = Installed::new(Bundle::hostile());
    let granted = with_network(Bundle::hostile());
    let outside = Outside::tester();
    for host in ["127.0.0.1", "::1"] {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let probe = connect(host, listener.local_addr().unwrap().port());
        outside.probe(&probe).allowed();
        plugin.probe(&probe).denied(&[Errno::EACCES, Errno::ECONNREFUSED, Errno::ENETUNREACH]);
        granted.probe(&probe).allowed();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.incoming().map_while(Result::ok).count(), 2, "two of the three arrived");
    }
    // No way out either, and not for want of a loopback.
    plugin.probe(&connect("192.0.2.1", 80)).denied(&[Errno::EACCES, Errno::ENETUNREACH]);
}

#[test]
fn udp_servers_of_the_host_are_out_of_reach() {
    let plugin = Installed::new(Bundle::hostile());
    let granted = with_network(Bundle::hostile());
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let probe = json!({"what": "send-udp", "host": "127.0.0.1", "port": server.local_addr().unwrap().port()});
    let mut datagram = [0; 64];
    // Sending into its own loopback may succeed; a datagram would be here before the probe has its answer.
    plugin.call("probe", &probe).success();
    assert_eq!(server.recv(&mut datagram).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    granted.probe(&probe).allowed();
    assert_eq!(server.recv(&mut datagram).unwrap(), b"hostile".len());
}

#[test]
fn the_network_namespace_alone_has_nothing_but_its_own_loopback() {
    let plugin = Installed::new(Bundle::hostile());
    let granted = with_network(Bundle::hostile());
    for plugin in [&plugin, &granted] {
        plugin.probe(&json!({"what": "socket-inet"})).allowed();
    }
    let namespace = |pid: u64| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    let ours = namespace(u64::from(std::process::id()));
    assert_ne!(namespace(plugin.pid()), ours);
    assert_eq!(namespace(granted.pid()), ours);
    let devices = std::fs::read_to_string(format!("/proc/{}/net/dev", plugin.pid())).unwrap();
    let names: Vec<&str> =
        devices.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim()).collect();
    assert_eq!(names, ["lo"]);
    // From within the namespace, and bound by nothing else, the host's server is not there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = format!("exec 3<>/dev/tcp/127.0.0.1/{}", listener.local_addr().unwrap().port());
    let reaches = |pid: u64| {
        let enter = ["--target", &pid.to_string(), "--net", "--", "bash", "-c", &open];
        std::process::Command::new("nsenter").args(enter).output().unwrap().status.success()
    };
    assert!(!reaches(plugin.pid()));
    assert!(reaches(granted.pid()));
}

/// In its own network namespace a plugin could bind any port: only Landlock keeps it from it.
#[test]
fn landlock_alone_refuses_tcp_without_the_network() {
    let plugin = Installed::new(Bundle::hostile());
    let granted = with_network(Bundle::hostile());
    let bind = json!({"what": "bind-tcp", "host": "127.0.0.1"});
    granted.probe(&bind).allowed();
    plugin.probe(&json!({"what": "socket-inet"})).allowed();
    if plugin.landlock_abi() >= 4 {
        plugin.probe(&bind).denied(&[Errno::EACCES]);
    } else {
        plugin.probe(&bind).allowed();
    }
}

#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    let name = format!("hostile-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let probe = json!({"what": "connect-abstract", "name": name});
    let own = json!({"what": "own-abstract", "name": "own"});
    Outside::tester().probe(&probe).allowed();
    let plugin = Installed::new(Bundle::hostile());
    plugin.probe(&own).allowed();
    plugin.probe(&probe).denied(&[Errno::ECONNREFUSED, Errno::EPERM]);
    // The host's network namespace is where the host's abstract sockets are: only Landlock keeps the plugin from them.
    let granted = with_network(Bundle::hostile());
    granted.probe(&own).allowed();
    let report = granted.probe(&probe);
    if granted.landlock_abi() >= 6 {
        report.denied(&[Errno::EPERM]);
    } else {
        report.allowed();
    }
}

#[test]
fn path_sockets_of_the_host_are_not_there() {
    let mine = format!("/tmp/hostile-{}.sock", std::process::id());
    let _listener = UnixListener::bind(&mine).unwrap();
    std::fs::set_permissions(&mine, std::fs::Permissions::from_mode(0o666)).unwrap();
    let runtime = user::runtime_dir();
    let sockets = [
        mine.clone(),
        format!("{runtime}/bus"),
        format!("{runtime}/systemd/private"),
        format!("{runtime}/plugind/launcher.sock"),
        "/run/dbus/system_bus_socket".to_owned(),
    ];
    let outside = Outside::tester();
    let granted = with_network(Bundle::hostile());
    let plugin = Installed::new(Bundle::hostile());
    for path in &sockets {
        let probe = json!({"what": "connect-unix", "path": path});
        if path.ends_with("launcher.sock") {
            // One packet, one message: a stream does not fit, and tells by that that it is there.
            outside.probe(&probe).denied(&[Errno::EPROTOTYPE]);
        } else {
            outside.probe(&probe).allowed();
        }
        plugin.probe(&probe).denied(&[Errno::ENOENT]);
        granted.probe(&probe).denied(&[Errno::ENOENT]);
    }
    std::fs::remove_file(&mine).unwrap();
    let plugin = Installed::new(Bundle::python());
    let own = "import socket; a = socket.socket(socket.AF_UNIX); a.bind('/tmp/own'); a.listen(); \
               b = socket.socket(socket.AF_UNIX); b.connect('/tmp/own')";
    plugin.python(own).allowed();
    plugin.python(&own.replace("/tmp/own", "/run/own")).denied(&[Errno::EROFS, Errno::EACCES]);
}

/// The families are refused whatever the network grant: seccomp alone.
#[test]
fn seccomp_alone_refuses_the_rare_families_of_sockets() {
    let plugins = [Installed::new(Bundle::hostile()), with_network(Bundle::hostile())];
    for plugin in &plugins {
        for what in ["socket-packet", "socket-vsock", "socket-alg"] {
            plugin.probe(&json!({"what": what})).denied(&[Errno::EPERM]);
        }
        for what in ["socket-inet", "socketpair", "socket-netlink"] {
            plugin.probe(&json!({"what": what})).allowed();
        }
    }
    Outside::root().probe(&json!({"what": "socket-packet"})).allowed();
    let plugins = [Installed::new(Bundle::python()), with_network(Bundle::python())];
    for plugin in &plugins {
        // Of netlink only ROUTE, by which programs ask for their addresses; no uevent, audit, sock_diag, netfilter.
        for protocol in [15, 9, 4, 12] {
            let code =
                format!("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, {protocol})");
            plugin.python(&code).denied(&[Errno::EPERM]);
        }
        plugin.python("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)").allowed();
        // Raw IP needs a capability in the network's own user namespace.
        plugin
            .python("import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)")
            .denied(&[Errno::EPERM]);
        plugin.python("import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)").allowed();
    }
}
