//! `kv.MGet` and its companions, over RPC.

use std::fmt::Display;
use std::sync::Arc;

use pronghorn_plugin_api::rpc::{Failure, Methods};

use crate::driver::Driver;
use crate::messages::{Request, Response, WireItem};
use crate::moment::Moment;
use crate::storages::Storages;

pub(crate) fn add(methods: &Methods, storages: &Storages) {
    let storages = storages.clone();
    let methods = methods.service_by_caller("kv", move |caller| storages.of(caller));
    methods.add("Has", has);
    methods.add("MGet", get);
    methods.add("Set", set);
    methods.add("MExpire", expire);
    methods.add("TTL", ttl);
    methods.add("Delete", delete);
    methods.add("Clear", clear);
}

/// With the name of RoadRunner's method in front.
fn failed(method: &str, why: impl Display) -> Failure {
    Failure::new(format!("{method}: {why}"))
}

/// PHP's package looks for `no such storage`.
fn storage(storages: &Storages, method: &str, name: &str) -> Result<Arc<dyn Driver>, Failure> {
    let found = storages.find(name);
    found.ok_or_else(|| failed(method, format!("no such storage: {name}")))
}

fn answer(items: impl Iterator<Item = WireItem>) -> Response {
    Response {
        items: items.collect(),
    }
}

async fn has(storages: Storages, request: Request) -> Result<Response, Failure> {
    const NAME: &str = "rpc_has";
    let driver = storage(&storages, NAME, &request.storage)?;
    let keys = request.keys().map_err(|wrong| failed(NAME, wrong))?;
    let found = driver.has(keys.clone(), Moment::now()).await;
    let found = found.map_err(|error| failed(NAME, error))?;
    let there = keys.into_iter().zip(found).filter(|(_, found)| *found);
    Ok(answer(there.map(|(key, _)| WireItem::new(key))))
}

async fn get(storages: Storages, request: Request) -> Result<Response, Failure> {
    const NAME: &str = "rpc_mget";
    let driver = storage(&storages, NAME, &request.storage)?;
    let keys = request.keys().map_err(|wrong| failed(NAME, wrong))?;
    let read = |most| driver.get(keys.clone(), Moment::now(), most);
    let found = storages.read(read).await;
    let found = found.map_err(|error| failed(NAME, error))?;
    let there = keys.into_iter().zip(found);
    Ok(answer(there.filter_map(|(key, value)| {
        Some(WireItem::with_value(key, value?))
    })))
}

async fn set(storages: Storages, request: Request) -> Result<Response, Failure> {
    const NAME: &str = "rpc_set";
    let driver = storage(&storages, NAME, &request.storage)?;
    let items = request.items().map_err(|wrong| failed(NAME, wrong))?;
    let done = driver.set(items, Moment::now()).await;
    done.map_err(|error| failed(NAME, error))?;
    Ok(Response::default())
}

async fn expire(storages: Storages, request: Request) -> Result<Response, Failure> {
    const NAME: &str = "rpc_mexpire";
    let driver = storage(&storages, NAME, &request.storage)?;
    let ends = request.ends().map_err(|wrong| failed(NAME, wrong))?;
    let done = driver.expire(ends, Moment::now()).await;
    done.map_err(|error| failed(NAME, error))?;
    Ok(Response::default())
}

async fn ttl(storages: Storages, request: Request) -> Result<Response, Failure> {
    const NAME: &str = "rpc_ttl";
    let driver = storage(&storages, NAME, &request.storage)?;
    let keys = request.keys().map_err(|wrong| failed(NAME, wrong))?;
    let found = driver.ends(keys.clone(), Moment::now()).await;
    let found = found.map_err(|error| failed(NAME, error))?;
    let there = keys.into_iter().zip(found);
    Ok(answer(there.filter_map(|(key, end)| {
        Some(WireItem::with_end(key, end?))
    })))
}

async fn delete(storages: Storages, request: Request) -> Result<Response, Failure> {
    const NAME: &str = "rpc_delete";
    let driver = storage(&storages, NAME, &request.storage)?;
    let keys = request.keys().map_err(|wrong| failed(NAME, wrong))?;
    let done = driver.delete(keys).await;
    done.map_err(|error| failed(NAME, error))?;
    Ok(Response::default())
}

async fn clear(storages: Storages, request: Request) -> Result<Response, Failure> {
    const NAME: &str = "rpc_clear";
    let driver = storage(&storages, NAME, &request.storage)?;
    driver.clear().await.map_err(|error| failed(NAME, error))?;
    Ok(Response::default())
}
