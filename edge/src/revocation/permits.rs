//! What lets the requests of a token go on, on one shard: one latch for each token, which all of its requests wait for.
//!
//! The end of the process closes them too, so that a request waits for one thing instead of two.

use std::{collections::HashMap, rc::Rc, sync::Arc};

use dataplane::local::Latch;

use crate::token::PrincipalToken;

/// Closed when the requests of one token are to end.
pub type Permit = Rc<Latch>;

/// The permits of all configured tokens.
#[derive(Debug)]
pub struct Permits(HashMap<Arc<str>, Permit>);

impl Permits {
    /// One for each token, open.
    #[must_use]
    pub fn new(principals: &[PrincipalToken]) -> Self {
        let permit = |token: &PrincipalToken| (Arc::clone(&token.principal.token_ref), Permit::default());
        Self(principals.iter().map(permit).collect())
    }

    /// The permit of a token; `None` when it is revoked or was never configured.
    #[must_use]
    pub fn of(&self, token_ref: &str) -> Option<Permit> {
        self.0.get(token_ref).filter(|permit| !permit.is_closed()).map(Rc::clone)
    }

    /// Ends every request of this token. Unknown ones are another Edge's.
    pub fn revoke(&self, token_ref: &str) {
        if let Some(permit) = self.0.get(token_ref) {
            permit.close();
        }
    }

    /// Ends every request.
    pub fn end_all(&self) {
        self.0.values().for_each(|permit| permit.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Principal;

    // req: PTK-1
    #[test]
    fn a_revoked_token_has_no_permit_and_the_others_keep_theirs() {
        let token = |token_ref: &str| PrincipalToken {
            hash: [0; 32],
            principal: Arc::new(Principal::new(token_ref, "alice", None)),
        };
        let permits = Permits::new(&[token("laptop"), token("phone")]);
        let (laptop, phone) = (permits.of("laptop").unwrap(), permits.of("phone").unwrap());
        permits.revoke("laptop");
        permits.revoke("somebody else's");
        assert!(laptop.is_closed() && !phone.is_closed());
        assert!(permits.of("laptop").is_none() && permits.of("tablet").is_none());
        permits.end_all();
        assert!(phone.is_closed());
    }
}
