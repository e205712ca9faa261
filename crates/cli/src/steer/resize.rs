//! `workers --add`, `workers --remove`

use pronghorn_control::{Ask, Tell};

use super::text::{counted, line};
use super::{Server, Task, over_rpc};
use crate::exit::{Exit, say};

pub(super) async fn run(task: &Task<'_>, pool: Option<&str>, by: i32) -> Result<Exit, String> {
    let said = match task.server().await? {
        Server::Control(mut client) => {
            let pool = pool.map(ToOwned::to_owned);
            match client.ask_once(Ask::Resize { pool, by }).await {
                Ok(Tell::Resized { pool, workers }) => {
                    format!("{}: {}\n", line(&pool), counted(workers, "worker"))
                }
                Ok(_) => return Err("the server answered with something else".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Server::Rpc(mut client, _) => {
            over_rpc::resize(&mut client, pool.unwrap_or("http"), by).await?;
            String::new()
        }
    };
    if !task.arguments.globals.silent {
        say(&said);
    }
    Ok(Exit::Done)
}
