//! The processed table in PostgreSQL, on a server of the Debian package that the test starts in a
//! temporary folder, on loopback, as a user without rights, and ends.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use varvelog_client::idempotent::PostgresTable;

use super::table::{a_failure_leaves_no_note, notes_go_by_age, two_at_once_are_one};

/// Where Debian keeps the programs of the server; the newest.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.filter_map(|it| Some(it.ok()?.path().join("bin")));
    folders.filter(|it| it.join("initdb").exists()).max()
}

/// User and group to run it as; none: as we are. The server refuses to run as root.
fn user() -> Option<(u32, u32)> {
    let number = |arguments: &[&str]| {
        let output = Command::new("id").args(arguments).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    if number(&["-u"])? != 0_u32 {
        return None;
    }
    Some((number(&["-u", "nobody"])?, number(&["-g", "nobody"])?))
}

fn as_user(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some((user, group)) = user {
        command.uid(user).gid(group);
    }
    command
}

/// A server with nothing in it.
pub(super) struct Server {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Server {
    /// None, and a word about it, where PostgreSQL is not installed; CI demands it.
    pub(super) fn start_if_there() -> Option<Self> {
        let Some(programs) = programs() else {
            let missing = "PostgreSQL is not installed (apt-get install postgresql)";
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            println!("NOT TESTED: {missing}: the processed table in PostgreSQL");
            return None;
        };
        Some(Self::start(&programs))
    }

    /// Where it takes connections.
    pub(super) fn url(&self) -> String {
        format!("postgres://tests@127.0.0.1:{}/postgres", self.port)
    }

    fn start(programs: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let user = user();
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let data = folder.path().join("data");
        let made = as_user(&programs.join("initdb"), user)
            .args([
                "--auth=trust",
                "--username=tests",
                "--no-sync",
                "--encoding=UTF8",
            ])
            .args(["--locale=C", "--pgdata"])
            .arg(&data)
            .current_dir(folder.path())
            .status()
            .unwrap();
        assert!(made.success(), "initdb: {made}");
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let child = as_user(&programs.join("postgres"), user)
            .arg("-D")
            .arg(&data)
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-F", "-k"])
            .arg(folder.path())
            .current_dir(folder.path())
            .spawn()
            .unwrap();
        Self {
            child,
            port,
            _folder: folder,
        }
    }

    pub(super) async fn pool(&self) -> PgPool {
        let address = self.url();
        for _ in 0..100 {
            let pool = PgPoolOptions::new()
                .max_connections(8)
                .connect(&address)
                .await;
            match pool {
                Ok(pool) => return pool,
                Err(_not_yet) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        panic!("the server takes no connections");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its fast shutdown, which also ends its children.
        let pid = self.child.id().to_string();
        drop(Command::new("kill").args(["-INT", &pid]).status());
        drop(self.child.wait());
    }
}

#[tokio::test]
async fn postgresql_notes_each_message_once() {
    let Some(server) = Server::start_if_there() else {
        return;
    };
    let pool = server.pool().await;
    let table = |group: &'static str| PostgresTable::open(pool.clone(), group);
    // Several that open it first, at the same time.
    let (a, b) = tokio::join!(table("a"), table("b"));
    two_at_once_are_one(a.unwrap()).await;
    a_failure_leaves_no_note(b.unwrap()).await;
    notes_go_by_age(&table("c").await.unwrap(), &table("d").await.unwrap()).await;
    pool.close().await;
}
