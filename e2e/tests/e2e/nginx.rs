//! Debian's nginx, for what has to be measured against it.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use pronghorn_testkit::{Connection, Site, wait_for};

/// A running nginx; ends with this value.
pub(crate) struct Nginx {
    process: Child,
    address: SocketAddr,
}

impl Nginx {
    /// Starts it in a site's folder, with this inside its block `http`, where something listens on
    /// the address.
    pub(crate) fn start(site: &Site, http: &str, address: SocketAddr) -> Self {
        let folder = site.folder();
        let name = folder.display();
        // As root it would become somebody who may not read the folder.
        let user = if rustix::process::geteuid().is_root() {
            "user root;"
        } else {
            ""
        };
        let around = format!(
            "{user} daemon off; worker_processes 1; pid {name}/nginx.pid; error_log {name}/nginx.log;\n\
             events {{}}\n\
             http {{ access_log off; types {{ text/css css; }}\n\
             client_body_temp_path {name}/nginx-body; proxy_temp_path {name}/nginx-proxy; fastcgi_temp_path {name}/nginx-fastcgi;\n\
             uwsgi_temp_path {name}/nginx-uwsgi; scgi_temp_path {name}/nginx-scgi;\n{http}}}\n"
        );
        site.write("nginx.conf", &around);
        let process = Command::new("/usr/sbin/nginx")
            .args(["-e", "nginx.log", "-p"])
            .arg(folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("nginx is installed (scripts/need tests)");
        let nginx = Self { process, address };
        wait_for("nginx to listen", || {
            std::net::TcpStream::connect(address).ok().map(drop)
        });
        nginx
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.process);
        _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM); // it may have ended
        _ = self.process.wait(); // as above
    }
}
