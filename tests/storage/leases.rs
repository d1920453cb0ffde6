//! The promises about leases: one owner at a time, and a former owner can no longer write.

use std::{sync::Arc, time::Duration};

use graphrun::{
    checkpoint::{CheckpointError, Entry, LeaseInfo, LeaseRequest, LeaseToken, Presence},
    event::Status,
    id::Step,
};
use jiff::Timestamp;
use tokio::{sync::Barrier, task::JoinSet, time::sleep};

use crate::storage::sample::*;

promises! {
    of_several_that_claim_a_run_at_once_one_gets_it
    of_several_that_begin_a_run_at_once_one_gets_it
    of_several_that_see_an_owner_gone_one_gets_its_run
    a_run_belongs_to_the_process_that_started_it
    an_expired_lease_can_be_acquired_and_its_owner_cannot_write
    an_owner_with_an_expired_lease_continues_if_no_other_took_it
    an_owner_that_is_overtaken_between_two_entries_cannot_write
    an_active_owner_keeps_its_run_with_any_clock
    a_claim_replaces_only_the_lease_that_it_names
    an_entry_that_brings_a_run_to_rest_gives_it_back
    a_released_run_can_be_acquired_and_its_owner_cannot_write
    giving_back_does_nothing_to_the_lease_of_another
    a_lease_lasts_from_when_it_was_renewed
    a_lease_may_be_as_long_as_one_likes
    a_run_that_is_removed_is_forgotten
    a_run_that_is_held_is_not_removed
}

/// The owner has written its last entry by the same connection, which may remember the head of the run.
async fn an_owner_that_is_overtaken_between_two_entries_cannot_write(home: Home) {
    let storage = home.open();
    for (id, other) in [("R1", Arc::clone(&storage)), ("R2", home.open())] {
        let first = commit(0, vec![]).into();
        let lease = short(request_of(1));
        let token = storage.create(&info(id, id), &lease, &first).await.unwrap();
        storage.append(&token, &commit(1, vec![]).into()).await.unwrap();
        let next = other.acquire(&run(id), &request_of(2)).await.unwrap();
        let error = storage.append(&token, &commit(2, vec![]).into()).await.unwrap_err();
        assert!(matches!(error, CheckpointError::Overtaken { .. }), "{id}: {error:?}");
        other.append(&next, &commit(2, vec![]).into()).await.unwrap();
        let error = storage.append(&next, &commit(2, vec![]).into()).await.unwrap_err();
        assert!(told(&error).contains("expected step 3"), "{id}: {error:?}");
        storage.append(&next, &commit(3, vec![]).into()).await.unwrap();
        other.append(&next, &commit(4, vec![]).into()).await.unwrap();
        other.release(&next).await.unwrap();
        other.remove(&run(id)).await.unwrap();
        let error = storage.append(&next, &commit(5, vec![]).into()).await.unwrap_err();
        assert!(matches!(error, CheckpointError::UnknownRun(_)), "{id}: {error:?}");
    }
}

/// Returns everything of a run that a former owner could damage.
async fn state(home: &Home) -> String {
    let storage = home.open();
    let saved = storage.load(&run("R1")).await.unwrap();
    format!("{saved:?} {:?}", storage.journal(&run("R1")).await.unwrap())
}

/// A clock that is ahead ends every lease early; on one machine, the process of the owner decides.
async fn an_active_owner_keeps_its_run_with_any_clock(home: Home) {
    let storage = home.open();
    let presence = Presence::new();
    let owner = presence.owner().clone();
    let over = short(LeaseRequest { owner, ..request() });
    let first = commit(0, vec![]).into();
    storage.create(&info("R1", "a"), &over, &first).await.unwrap();
    let error = storage.acquire(&run("R1"), &request()).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Owned { .. }), "{error:?}");
    assert!(storage.remove(&run("R1")).await.is_err());
    drop(presence);
    storage.acquire(&run("R1"), &request()).await.unwrap();
}

/// Checks that the former owner of a lease can change nothing, and why.
async fn assert_powerless(home: &Home, token: &LeaseToken, why: &str) {
    let before = state(home).await;
    let storage = home.open();
    let entries: [(Entry, &str); 4] = [
        (record(1, 0, finished()).into(), "save the outcome of task 1.0 of run `R1`"),
        (commit(1, vec![set("brief", "late")]).into(), "save step 1 of run `R1`"),
        (run_status(Status::Failed, Some("late")).into(), "save run `R1` as failed"),
        (entry(Entry::default(), &events("R1", [1])), "save the events of run `R1`"),
    ];
    for (entry, what) in entries {
        let error = storage.append(token, &entry).await.unwrap_err();
        assert!(matches!(error, CheckpointError::Overtaken { .. }), "{error:?}");
        assert_eq!(told(&error), format!("could not {what}: {why}"));
    }
    let error = storage.renew(token, TTL).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Overtaken { .. }), "{error:?}");
    assert_eq!(told(&error), format!("could not renew the lease of run `R1`: {why}"));
    storage.release(token).await.unwrap();
    assert_eq!(before, state(home).await, "the earlier owner did something");
}

async fn lease_of(home: &Home) -> Option<LeaseInfo> {
    home.open().load(&run("R1")).await.unwrap().summary.lease
}

/// Checks that a claim is refused because this owner has the run.
async fn assert_owned(home: &Home, name: &str) {
    let error = home.open().acquire(&run("R1"), &request_of(99)).await.unwrap_err();
    let CheckpointError::Owned { run: owned, lease: told_of } = &error else {
        panic!("{error:?}");
    };
    assert_eq!((owned, Some(&**told_of)), (&run("R1"), lease_of(home).await.as_ref()));
    let until = told_of.until.strftime("%FT%TZ");
    let owned = format!("run `R1` is owned by {name} since {SINCE}; its lease expires at {until}");
    assert_eq!(told(&error), owned);
}

/// Starts eight claims at once; returns the one that got the run, after checking the errors of the
/// others.
async fn race<F>(home: &Home, request: impl Fn(u32) -> F) -> (u32, LeaseToken)
where
    F: Future<Output = Result<LeaseToken, CheckpointError>> + Send + 'static,
{
    let start = Arc::new(Barrier::new(8));
    let mut claims = JoinSet::new();
    for pid in 1..=8 {
        let start = Arc::clone(&start);
        let request = request(pid);
        claims.spawn(async move {
            start.wait().await;
            (pid, request.await)
        });
    }
    let mut winners = Vec::new();
    let mut losers = Vec::new();
    for (pid, result) in claims.join_all().await {
        match result {
            Ok(token) => winners.push((pid, token)),
            Err(error) => losers.push(error),
        }
    }
    assert_eq!((winners.len(), losers.len()), (1, 7), "{winners:?} {losers:?}");
    let (winner, token) = winners.remove(0);
    let owner = request_of(winner).owner;
    assert_eq!(
        lease_of(home).await.map(|it| (it.owner, it.fence)),
        Some((owner.clone(), token.fence))
    );
    for error in losers {
        match &error {
            CheckpointError::Owned { lease, .. } => assert_eq!(lease.owner, owner),
            CheckpointError::Exists(id) => assert_eq!(id, "R1"),
            other => panic!("{other:?}"),
        }
    }
    assert_owned(home, &format!("process {winner} on box{winner}")).await;
    (winner, token)
}

async fn of_several_that_claim_a_run_at_once_one_gets_it(home: Home) {
    let first = create(&home.open(), "R1").await;
    home.open().release(&first).await.unwrap();
    for step in 1..=3 {
        let (_, token) = race(&home, |pid| {
            let storage = home.open();
            async move { storage.acquire(&run("R1"), &request_of(pid)).await }
        })
        .await;
        let done =
            Entry { commit: Some(commit(step, vec![])), ..run_status(Status::Paused, None).into() };
        home.open().append(&token, &done).await.unwrap();
    }
    assert_eq!(home.open().load(&run("R1")).await.unwrap().summary.step, Step(3));
}

async fn of_several_that_begin_a_run_at_once_one_gets_it(home: Home) {
    let (winner, _) = race(&home, |pid| {
        let storage = home.open();
        async move {
            let first = commit(0, vec![set("brief", pid)]).into();
            storage.create(&info("R1", "a"), &request_of(pid), &first).await
        }
    })
    .await;
    let saved = home.open().load(&run("R1")).await.unwrap();
    assert_eq!(saved.values[&channel("brief")], winner);
}

async fn of_several_that_see_an_owner_gone_one_gets_its_run(home: Home) {
    let gone = create(&home.open(), "R1").await;
    race(&home, |pid| {
        let storage = home.open();
        let request = LeaseRequest { replaces_fence: Some(gone.fence), ..request_of(pid) };
        async move { storage.acquire(&run("R1"), &request).await }
    })
    .await;
}

async fn a_run_belongs_to_the_process_that_started_it(home: Home) {
    let before = Timestamp::now();
    let first = commit(0, vec![]).into();
    let token = home.open().create(&info("R1", "a"), &request_of(7), &first).await.unwrap();
    assert_owned(&home, "process 7 on box7").await;
    let lease = lease_of(&home).await.unwrap();
    assert_eq!((lease.owner, lease.fence), (request_of(7).owner, token.fence));
    let left = lease.until.duration_since(before).as_secs();
    assert!((58..=70).contains(&left), "{left} s of {TTL:?}");
    // The same owner cannot acquire it twice either: the second lease would end the first.
    assert!(home.open().acquire(&run("R1"), &request_of(7)).await.is_err());
    let found = [home.open().find("a").await.unwrap(), home.open().list().await.unwrap().remove(0)];
    assert_eq!(found.map(|it| it.lease.unwrap().owner), [(); 2].map(|()| request_of(7).owner));
}

async fn an_expired_lease_can_be_acquired_and_its_owner_cannot_write(home: Home) {
    let first = commit(0, vec![]).into();
    let early = home.open().create(&info("R1", "a"), &short(request_of(7)), &first).await.unwrap();
    let late = home.open().acquire(&run("R1"), &request_of(8)).await.unwrap();
    assert!(late.fence > early.fence, "{early:?} {late:?}");
    assert_owned(&home, "process 8 on box8").await;
    assert_powerless(&home, &early, "the run was taken over by 8@box8").await;
    home.open().append(&late, &commit(1, vec![]).into()).await.unwrap();
    // The same again with a lease that was renewed for some time.
    home.open().renew(&late, Duration::from_secs(2)).await.unwrap();
    assert_owned(&home, "process 8 on box8").await;
    sleep(Duration::from_millis(2020)).await;
    let latest = home.open().acquire(&run("R1"), &request_of(7)).await.unwrap();
    assert!(latest.fence > late.fence, "{late:?} {latest:?}");
    for earlier in [early, late] {
        assert_powerless(&home, &earlier, "the run was taken over by 7@box7").await;
    }
    home.open().append(&latest, &commit(2, vec![]).into()).await.unwrap();
}

async fn an_owner_with_an_expired_lease_continues_if_no_other_took_it(home: Home) {
    let first = commit(0, vec![]).into();
    let token = home.open().create(&info("R1", "a"), &short(request_of(7)), &first).await.unwrap();
    home.open().append(&token, &commit(1, vec![]).into()).await.unwrap();
    home.open().renew(&token, TTL).await.unwrap();
    assert_owned(&home, "process 7 on box7").await;
    home.open().append(&token, &commit(2, vec![]).into()).await.unwrap();
}

async fn a_claim_replaces_only_the_lease_that_it_names(home: Home) {
    let replacing = |pid, fence| LeaseRequest { replaces_fence: Some(fence), ..request_of(pid) };
    let first = create(&home.open(), "R1").await;
    for other in [first.fence - 1, first.fence + 1, u64::MAX] {
        let request = replacing(8, other);
        let error = home.open().acquire(&run("R1"), &request).await.unwrap_err();
        assert!(matches!(error, CheckpointError::Owned { .. }), "{error:?}");
    }
    let second = home.open().acquire(&run("R1"), &replacing(8, first.fence)).await.unwrap();
    assert!(second.fence > first.fence);
    assert_powerless(&home, &first, "the run was taken over by 8@box8").await;
    let error = home.open().acquire(&run("R1"), &replacing(9, first.fence)).await.unwrap_err();
    assert!(told(&error).contains("process 8 on box8"), "{}", told(&error));
    assert_owned(&home, "process 8 on box8").await;
    // A run without an owner is given to every claim.
    home.open().release(&second).await.unwrap();
    let third = home.open().acquire(&run("R1"), &replacing(9, first.fence)).await.unwrap();
    assert!(third.fence > second.fence);
    home.open().append(&third, &commit(1, vec![]).into()).await.unwrap();
}

async fn an_entry_that_brings_a_run_to_rest_gives_it_back(home: Home) {
    let token = create(&home.open(), "R1").await;
    for working in [
        commit(1, vec![]).into(),
        run_status(Status::Running, None).into(),
        Entry { run_status: Some(run_status(Status::Running, None)), ..commit(2, vec![]).into() },
    ] {
        home.open().append(&token, &working).await.unwrap();
        assert_eq!(lease_of(&home).await.map(|it| it.fence), Some(token.fence));
    }
    home.open().append(&token, &run_status(Status::Paused, None).into()).await.unwrap();
    let mut before = token;
    for (step, status) in (3..).zip([
        Status::Done,
        Status::Failed,
        Status::Paused,
        Status::Limit,
        Status::Interrupted,
    ]) {
        assert_eq!(lease_of(&home).await, None, "before {status:?}");
        assert_powerless(&home, &before, "the run was released").await;
        let token = home.open().acquire(&run("R1"), &request_of(7)).await.unwrap();
        assert!(token.fence > before.fence);
        assert_powerless(&home, &before, "the run was taken over by 7@box7").await;
        let rest = Entry { commit: Some(commit(step, vec![])), ..run_status(status, None).into() };
        home.open().append(&token, &rest).await.unwrap();
        let found = home.open().load(&run("R1")).await.unwrap().summary;
        assert_eq!((found.status, found.step, found.lease), (status, Step(step), None));
        before = token;
    }
}

async fn a_released_run_can_be_acquired_and_its_owner_cannot_write(home: Home) {
    let first = create(&home.open(), "R1").await;
    home.open().release(&first).await.unwrap();
    assert_eq!(lease_of(&home).await, None);
    assert_powerless(&home, &first, "the run was released").await;
    let second = home.open().acquire(&run("R1"), &request_of(8)).await.unwrap();
    assert_powerless(&home, &first, "the run was taken over by 8@box8").await;
    home.open().append(&second, &commit(1, vec![]).into()).await.unwrap();
}

async fn giving_back_does_nothing_to_the_lease_of_another(home: Home) {
    let first = create(&home.open(), "R1").await;
    let other = create(&home.open(), "R2").await;
    home.open().release(&first).await.unwrap();
    home.open().release(&first).await.unwrap();
    home.open().append(&other, &commit(1, vec![]).into()).await.unwrap();
    home.open().acquire(&run("R1"), &request_of(8)).await.unwrap();
    home.open().release(&first).await.unwrap();
    assert_owned(&home, "process 8 on box8").await;
}

async fn a_lease_lasts_from_when_it_was_renewed(home: Home) {
    let token = create(&home.open(), "R1").await;
    let until = async || lease_of(&home).await.unwrap().until;
    let lasts = async |ttl: Duration| {
        let before = Timestamp::now();
        home.open().renew(&token, ttl).await.unwrap();
        let lasts = until().await.duration_since(before).as_millis();
        let lasts = lasts - i128::try_from(ttl.as_millis()).unwrap();
        // Accurate to the millisecond, rounded down, plus the duration of the call.
        assert!((-2..=5000).contains(&lasts), "{lasts} ms from {ttl:?}");
    };
    for seconds in [1, 3600, 60] {
        lasts(Duration::from_secs(seconds)).await;
    }
    // A short lease that is renewed repeatedly does not end.
    for _ in 0..10 {
        lasts(Duration::from_secs(2)).await;
        sleep(Duration::from_millis(250)).await;
        assert!(home.open().acquire(&run("R1"), &request_of(9)).await.is_err());
    }
    assert_eq!(lease_of(&home).await.unwrap().fence, token.fence);
    lasts(Duration::ZERO).await;
    home.open().acquire(&run("R1"), &request_of(9)).await.unwrap();
}

async fn a_lease_may_be_as_long_as_one_likes(home: Home) {
    let mut token = create(&home.open(), "R1").await;
    for ttl in [Duration::from_secs(1 << 44), Duration::from_millis(u64::MAX >> 1), Duration::MAX] {
        home.open().renew(&token, ttl).await.unwrap();
        assert_eq!(home.open().list().await.unwrap().len(), 1, "{ttl:?}");
        home.open().append(&token, &Entry::default()).await.unwrap();
        home.open().release(&token).await.unwrap();
        token =
            home.open().acquire(&run("R1"), &LeaseRequest { ttl, ..request_of(8) }).await.unwrap();
        assert_owned(&home, "process 8 on box8").await;
    }
}

async fn a_run_that_is_removed_is_forgotten(home: Home) {
    let one = create(&home.open(), "R1").await;
    let other = create(&home.open(), "R2").await;
    for token in [&one, &other] {
        let news = events(token.run.as_str(), [1]);
        home.open().append(token, &entry(record(1, 0, finished()), &news)).await.unwrap();
    }
    home.open().release(&one).await.unwrap();
    home.open().remove(&one.run).await.unwrap();

    let storage = home.open();
    for error in [
        storage.load(&one.run).await.unwrap_err(),
        storage.find("R1-name").await.unwrap_err(),
        storage.journal(&one.run).await.unwrap_err(),
        storage.acquire(&one.run, &request()).await.unwrap_err(),
        storage.append(&one, &commit(1, vec![]).into()).await.unwrap_err(),
        storage.remove(&one.run).await.unwrap_err(),
    ] {
        assert!(matches!(error, CheckpointError::UnknownRun(_)), "{error:?}");
    }
    let left = storage.list().await.unwrap();
    assert_eq!(left.iter().map(|it| it.info.id.as_str()).collect::<Vec<_>>(), ["R2"]);
    storage.append(&other, &commit(1, vec![]).into()).await.unwrap();
    // Id and name are free, and the second run contains nothing of the first.
    let again = create(&home.open(), "R1").await;
    let news = events("R1", [1]);
    home.open().append(&again, &entry(record(1, 0, finished()), &news)).await.unwrap();
    assert_eq!(home.open().journal(&again.run).await.unwrap().len(), 2);
    let found = home.open().list().await.unwrap();
    assert_eq!(found.iter().map(|it| it.info.id.as_str()).collect::<Vec<_>>(), ["R1", "R2"]);
}

async fn a_run_that_is_held_is_not_removed(home: Home) {
    let first = commit(0, vec![]).into();
    let token = home.open().create(&info("R1", "a"), &request_of(7), &first).await.unwrap();
    let before = state(&home).await;
    let error = home.open().remove(&run("R1")).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Owned { .. }), "{error:?}");
    assert!(told(&error).contains("owned by process 7 on box7"), "{}", told(&error));
    assert_eq!(before, state(&home).await);
    // The lease must have expired; releasing it is not enough.
    home.open().renew(&token, Duration::ZERO).await.unwrap();
    home.open().remove(&run("R1")).await.unwrap();
    assert_eq!(home.open().list().await.unwrap(), []);
}
