//! One host of a play goes first with what may cut it off, and the others only when that was confirmed.

use super::super::rolling;
use crate::resource::probes::links::{Link, Links};
use crate::verify::fabric::same_network;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who goes first in a play.
pub struct Canary {
    max_fail_percentage: Option<f64>,
    /// Whether two go first, to send packets to each other.
    pair: bool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    stands: Stands,
    /// How many are on their way before anything is proven.
    out: usize,
    /// The hosts that have their larger MTU, with what is raised there and the addresses of it.
    raised: Vec<(String, Vec<Raised>)>,
    /// How many of the batch were rolled back, and of how many.
    lost: usize,
    batch: usize,
    /// How many hosts are visited at once.
    at_once: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stands {
    /// Nobody has gone yet.
    Open,
    /// One is on its way.
    Out,
    /// One was confirmed.
    Proven,
    /// Nobody goes any more: why.
    Stopped(String),
}

/// An interface, its new MTU, and its addresses with their prefixes.
pub(super) type Raised = (String, u32, Vec<String>);
/// Where packets are sent to: the host, by which interface, to which address, and how large.
pub(super) type Peer = (String, String, String, u32);

/// Leave to go; what came of it is told by it.
pub(super) struct Ticket<'c> {
    canary: &'c Canary,
    first: bool,
}

impl Canary {
    pub(in crate::engine) fn new(max_fail_percentage: Option<f64>, pair: bool) -> Canary {
        let state = State { stands: Stands::Open, out: 0, raised: Vec::new(), lost: 0, batch: 0, at_once: 0 };
        Canary { max_fail_percentage, pair, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch of so many hosts begins, of which so many are visited at once. What was proven before holds for it too.
    pub(in crate::engine) fn batch(&self, hosts: usize, at_once: usize) {
        let mut state = self.state();
        (state.lost, state.batch, state.at_once) = (0, hosts, at_once);
    }

    /// Whether there will be no other host to send packets to: it goes alone, and none has come through.
    pub(super) fn alone(&self, host: &str) -> bool {
        let state = self.state();
        self.pair && state.batch.min(state.at_once) < 2 && state.raised.iter().all(|(other, _)| other == host)
    }

    /// Waits until this host may go.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn enter(&self, interrupted: &AtomicBool) -> Result<Ticket<'_>, String> {
        let mut state = self.state();
        loop {
            match &state.stands {
                Stands::Open => {
                    state.out += 1;
                    if state.out >= if self.pair { 2 } else { 1 } {
                        state.stands = Stands::Out;
                    }
                    return Ok(Ticket { canary: self, first: true });
                }
                Stands::Proven => return Ok(Ticket { canary: self, first: false }),
                Stands::Stopped(why) => return Err(why.clone()),
                Stands::Out if interrupted.load(Ordering::Relaxed) => {
                    return Err("the run was interrupted before this was done".to_owned());
                }
                Stands::Out => {
                    let wait = self.changed.wait_timeout(state, Duration::from_millis(200));
                    state = wait.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Waits until another host has its larger MTU, and tells where packets of that size are to be sent.
    ///
    /// # Errors
    /// Why there is nobody to send them to.
    pub(super) fn meet(
        &self,
        host: &str,
        own: &[Raised],
        until: Instant,
        interrupted: &AtomicBool,
    ) -> Result<Vec<Peer>, String> {
        let mut state = self.state();
        state.raised.retain(|(other, _)| other != host);
        state.raised.push((host.to_owned(), own.to_vec()));
        self.changed.notify_all();
        loop {
            let peer = |(name, _, addresses): &Raised, mtu: u32| {
                let others = state.raised.iter().filter(|(other, _)| other != host);
                others.flat_map(|(other, all)| all.iter().map(move |raised| (other, raised))).find_map(
                    |(other, raised)| {
                        let meets = |to: &&String| addresses.iter().any(|from| same_network(from, to));
                        let to = raised.2.iter().find(meets).filter(|_| raised.1 >= mtu)?;
                        Some((other.clone(), name.clone(), to.split('/').next().unwrap_or_default().to_owned(), mtu))
                    },
                )
            };
            let found: Option<Vec<Peer>> = own.iter().map(|raised| peer(raised, raised.1)).collect();
            if let Some(found) = found {
                return Ok(found);
            }
            if Instant::now() >= until || interrupted.load(Ordering::Relaxed) {
                return Err("no other host of the play had the larger MTU in the same network at that time to send packets to: \
                            `path_mtu` needs two at once, also by --forks and `serial`"
                    .to_owned());
            }
            let wait = self.changed.wait_timeout(state, Duration::from_millis(200));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A host has its former MTU again, or never got another one.
    pub(super) fn left(&self, host: &str) {
        self.state().raised.retain(|(other, _)| other != host);
    }
}

/// What sends packets to prove a larger MTU: each link that is raised or, where that is a port, the bridge or bond that has its
/// addresses. One without any is proven by a link that stands on it and is raised too.
///
/// # Errors
/// No packets can prove a link; why.
pub(super) fn senders(raises: &[(String, u32)], links: &Links) -> Result<Vec<Raised>, String> {
    let mut senders: Vec<Raised> = Vec::new();
    for (name, mtu) in raises {
        let link = links.get(name).ok_or_else(|| format!("there is no {name} any more"))?;
        let mut sender = Some(link);
        for _ in 0..links.all.len() {
            let next = |l: &&Link| l.addresses.is_empty();
            let Some(port) = sender.filter(next) else { break };
            sender = port.master.as_ref().and_then(|master| links.get(master));
        }
        match sender {
            Some(sender) if senders.iter().any(|(other, ..)| *other == sender.name) => {}
            Some(sender) => senders.push((sender.name.clone(), *mtu, sender.addresses.clone())),
            None => {
                let above = |(other, _): &(String, u32)| {
                    other != name && links.get(other).is_some_and(|other| links.carries(link, other))
                };
                if !raises.iter().any(above) {
                    return Err(format!("{name} has no address from which `path_mtu` could send packets"));
                }
            }
        }
    }
    Ok(senders)
}

impl Ticket<'_> {
    /// It was confirmed: all may go.
    pub(super) fn confirmed(self) {
        let mut state = self.canary.state();
        if self.first && state.stands != Stands::Proven && !matches!(state.stands, Stands::Stopped(_)) {
            state.stands = Stands::Proven;
        }
    }

    /// It was taken back, or the host was lost, as this says: no other goes, unless `max_fail_percentage` allows more of them to fail.
    pub(super) fn failed(self, what: &str) {
        let mut state = self.canary.state();
        state.lost += 1;
        let limit = self.canary.max_fail_percentage;
        if limit.is_none() || rolling::over(state.lost, state.batch, limit) {
            state.stands = Stands::Stopped(format!("{what}, and is made on no other host"));
        }
    }
}

impl Drop for Ticket<'_> {
    /// Also of one who has told nothing: then the next one goes first.
    fn drop(&mut self) {
        let mut state = self.canary.state();
        state.out = state.out.saturating_sub(usize::from(self.first));
        if self.first && state.stands == Stands::Out {
            state.stands = Stands::Open;
        }
        self.canary.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::probes::links::tests::{FABRIC, links};

    /// What sends the packets: the text of `ip -d -j addr` of a host with a bond, a VLAN on it, and a bridge.
    #[test]
    fn packets_are_sent_by_what_has_an_address() {
        let bridge = FABRIC.replacen(r#""mtu":1500,"master":"bond0""#, r#""mtu":1500,"master":"bond0.100""#, 1);
        let [plain, bridge] = [FABRIC, &bridge].map(links);
        let of = |links: &Links, names: &[&str]| {
            let raises: Vec<(String, u32)> = names.iter().map(|name| ((*name).to_owned(), 9000)).collect();
            senders(&raises, links).map(|all| all.into_iter().map(|(name, ..)| name).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of(&plain, &["bond0.100"]).unwrap(), "bond0.100");
        // What stands on it proves the bond and its ports, and a port's bridge the port.
        assert_eq!(of(&plain, &["eth0", "bond0", "bond0.100"]).unwrap(), "bond0.100");
        assert_eq!(of(&bridge, &["eth0"]).unwrap(), "bond0.100");
        assert_eq!(
            of(&plain, &["bond0"]).unwrap_err(),
            "bond0 has no address from which `path_mtu` could send packets"
        );
        assert_eq!(of(&plain, &["gone"]).unwrap_err(), "there is no gone any more");
    }

    #[test]
    fn the_others_go_when_the_first_was_confirmed_and_not_when_it_was_taken_back() {
        let go = AtomicBool::new(false);
        let canary = Canary::new(None, false);
        canary.batch(3, 8);
        let first = canary.enter(&go).unwrap();
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..2).map(|_| scope.spawn(|| canary.enter(&go).map(Ticket::confirmed))).collect();
            std::thread::sleep(Duration::from_millis(50));
            assert!(others.iter().all(|o| !o.is_finished()), "they wait");
            first.confirmed();
            for other in others {
                other.join().unwrap().unwrap();
            }
        });
        canary.enter(&go).unwrap().failed("it was rolled back on n2");
        assert_eq!(canary.enter(&go).err().unwrap(), "it was rolled back on n2, and is made on no other host");
        // Packets are sent to another host of the batch, or to one that has come through.
        let pair = Canary::new(None, true);
        for (hosts, at_once) in [(2, 1), (1, 8)] {
            pair.batch(hosts, at_once);
            assert!(pair.alone("n1"));
        }
        assert!(pair.alone("n1") && !canary.alone("n1"));
        pair.state().raised.push(("n0".to_owned(), Vec::new()));
        assert!(!pair.alone("n1"));
        // Of ten hosts one may be lost: the next one goes first then.
        let canary = Canary::new(Some(10.0), false);
        canary.batch(10, 8);
        canary.enter(&go).unwrap().failed("it was rolled back on n1");
        let second = canary.enter(&go).unwrap();
        assert!(second.first);
        second.failed("it was rolled back on n2");
        assert!(canary.enter(&go).is_err());
        // One that ends without a word holds nobody up; an interruption does.
        let canary = Canary::new(None, false);
        drop(canary.enter(&go).unwrap());
        let _first = canary.enter(&go).unwrap();
        go.store(true, Ordering::Relaxed);
        assert!(canary.enter(&go).err().unwrap().contains("interrupted"));
    }
}
