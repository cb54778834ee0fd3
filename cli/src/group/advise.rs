//! `varvelog group advise`.

use clap::Args;
use serde_json::json;
use varvelog_proto::v1;

use super::calls::get_group;
use super::views::group_age;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Block, View, show_count, to_json};

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdviseArgs {
    /// Its name
    name: String,
}

pub(crate) async fn run(args: AdviseArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let group = get_group(&connection, &args.name).await?;
    context.output.show(&advice_view(&group))?;
    Ok(())
}

fn advice_view(group: &v1::Group) -> View {
    let members = match group.members.len() {
        1 => String::from("1 member"),
        many => format!("{many} members"),
    };
    let lag = group.total_lag;
    let why = if lag == 0 {
        format!("nothing left to do, {members}")
    } else {
        let records = show_count(lag);
        let age = group_age(group);
        format!("{records} records not done, the oldest {age}, {members}")
    };
    let whole = to_json("Group", group);
    let json = json!({
        "group": group.name,
        "workers": group.scale_advice,
        "members": group.members.len(),
        "totalLag": whole.get("totalLag"),
        "oldestUnprocessedAge": whole.get("oldestUnprocessedAge"),
    });
    let pairs = vec![
        ("group", group.name.clone()),
        ("workers", advice_text(group.scale_advice)),
        ("because", why),
    ];
    View::one(group.name.clone(), json, vec![Block::Pairs(pairs)])
}

fn advice_text(workers: i32) -> String {
    match workers {
        0 => String::from("as many as there are"),
        more if more > 0 => format!("{more} more"),
        fewer => format!("{} fewer", fewer.unsigned_abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(scale_advice: i32, total_lag: i64) -> v1::Group {
        v1::Group {
            name: "email".into(),
            scale_advice,
            total_lag,
            oldest_unprocessed_age: Some(prost_types::Duration {
                seconds: i64::from(total_lag > 0) * 75,
                nanos: 0,
            }),
            members: vec![v1::Member::default()],
            ..v1::Group::default()
        }
    }

    #[test]
    fn the_advice_comes_with_its_reason_and_as_a_number_for_programs() {
        let view = advice_view(&group(2, 1_500));
        assert_eq!(
            view.to_text(str::to_owned),
            "group    email\nworkers  2 more\n\
             because  1,500 records not done, the oldest 1m 15s, 1 member\n"
        );
        assert_eq!(
            view.json.to_string(),
            "{\"group\":\"email\",\"workers\":2,\"members\":1,\"totalLag\":\"1500\",\
             \"oldestUnprocessedAge\":\"75s\"}"
        );
        let idle = advice_view(&group(-1, 0)).to_text(str::to_owned);
        assert!(idle.contains("workers  1 fewer\n"), "{idle}");
        assert!(idle.contains("nothing left to do"), "{idle}");
    }
}
