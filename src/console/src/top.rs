//! `sheave top`: live traffic of a running gateway, by Service, endpoint, cluster or network of clients.

mod app;
mod ask;
mod feed;
mod fit;
mod keys;
mod layout;
mod look;
mod messages;
mod model;
mod pane;
mod recent;
mod screen;
mod state_line;
mod table;
mod terminal;
mod tracked;

use std::time::Duration;

use tokio::time::timeout;

use self::feed::{Feed, FeedEvent};
use self::model::Model;
use self::table::{Cell, Item, Order};
use crate::admin_server::AdminServer;
use crate::arguments::{Top, TopRows};
use crate::exit::Exit;
use crate::inspect;
use crate::stdout::{complain, print, render};
use crate::views::text_table::{columns, or_dash};

/// How long `--once` waits for a second of counts, which can be megabytes. A silent gateway is reported sooner.
const PATIENCE: Duration = Duration::from_secs(60);
/// Shortest interval for rates; a shorter one is noise. The first counts may arrive early if pages are already open.
const SHORTEST_SECOND: f64 = 0.9;

/// Runs until the user ends it, or prints once.
pub async fn run(command: &Top, server: AdminServer) -> Exit {
    let order = match &command.sort {
        Some(name) => table::column_named(command.view, name)
            .map(|column| Order { column, ..Order::usual(command.view) }),
        None => Ok(Order::usual(command.view)),
    };
    let order = match order {
        Ok(order) => order,
        Err(why) => {
            complain(&format!("--sort: {why}"));
            return Exit::Usage;
        }
    };
    if command.once {
        once(command, &server.authority, order).await
    } else {
        terminal::run(command, &server.authority, order).await
    }
}

/// Prints the traffic of one second.
async fn once(command: &Top, authority: &str, order: Order) -> Exit {
    let counted = timeout(PATIENCE, counted(authority, command.view)).await;
    let counted =
        counted.unwrap_or_else(|_| Err(format!("it sent no counts within {} s", PATIENCE.as_secs())));
    let model = match counted {
        Ok(model) => model,
        Err(why) => return inspect::unanswered(authority, &why),
    };
    let filter = command.filter.to_lowercase();
    let view = model.view(command.view, |label| label.has(&filter));
    print(&render(&view, || text(&model, command.view, order, &filter), command.output))
}

async fn counted(authority: &str, rows: TopRows) -> Result<Model, String> {
    let mut feed = Feed::open(authority, rows);
    let mut model = Model::default();
    while model.seconds(rows).is_none_or(|seconds| seconds < SHORTEST_SECOND) {
        match feed.next().await {
            FeedEvent::Message(message) => drop(model.take(message)),
            FeedEvent::Lost(why) => return Err(why),
        }
    }
    Ok(model)
}

/// Formats the rows as aligned columns.
fn text(model: &Model, rows: TopRows, order: Order, filter: &str) -> String {
    let mut items = model.items(rows);
    items.retain(|item| item.label.has(filter));
    // For programs, the rows are in the order of the column alone.
    Order { state_first: false, ..order }.sort(rows, &mut items);
    items.extend(model.without_row(rows).filter(|_| filter.is_empty()));
    let shown = table::columns(rows);
    let mut lines = vec![shown.iter().map(|column| column.title.to_owned()).collect::<Vec<_>>()];
    let cell = |item: &Item, cell: Cell| or_dash(&cell.show(item));
    lines.extend(items.iter().map(|item| shown.iter().map(|column| cell(item, column.cell)).collect()));
    columns(&lines)
}

#[cfg(test)]
mod tests;
