//! The tunnel to an OpenAI-compatible server: a request of the Edge becomes one HTTP request of the profile's own, and the
//! answer goes back byte for byte (TUN-3).
//!
//! | Module | Owns | Pure |
//! |---|---|---|
//! | [`endpoint`] | the profile's URLs, parsed once | yes |
//! | [`credentials`] | which requests may share a connection | yes |
//! | [`choice`] | which endpoint a request is for | yes |
//! | [`fields`] | which header fields cross, in both directions | yes |
//! | [`exchange`] | the request, the answer, and credit between them | no |
//!
//! A redirect is an answer like any other: it is passed on and never followed.

pub mod choice;
pub mod credentials;
pub mod endpoint;
pub mod exchange;
pub mod fields;

use std::rc::Rc;

use dataplane::http::head::Headers;
use proto::message::{ErrorKind, OpenAiCompatConfig, TunnelRequest};
use thiserror::Error;

use crate::run::terminal::Failed;
use endpoint::{Endpoint, EndpointError};
use fields::StaticFieldError;

/// One `openai_compat` instance.
#[derive(Debug)]
pub struct OpenAiCompat {
    endpoints: Vec<Rc<Endpoint>>,
    static_fields: Headers,
    /// Of the static fields.
    credential: u64,
}

/// Why an instance cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// An operation cannot be called.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A static header cannot be sent.
    #[error(transparent)]
    Field(#[from] StaticFieldError),
}

/// A request that is known to be for one of the profile's endpoints.
#[derive(Debug)]
pub struct Prepared {
    /// Which.
    pub endpoint: Rc<Endpoint>,
    /// The fields to send; none of the message's framing.
    pub fields: Headers,
    /// Stands for the credential among them.
    pub credential: u64,
}

impl OpenAiCompat {
    /// An instance with these settings.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn new(settings: &OpenAiCompatConfig) -> Result<Self, ProfileError> {
        let endpoints = settings.profile.operations.iter();
        let endpoints =
            endpoints.map(|typed| Endpoint::parse(typed).map(Rc::new)).collect::<Result<_, _>>()?;
        let static_fields = fields::static_fields(&settings.headers)?;
        Ok(Self { endpoints, credential: credentials::of_fields(&static_fields), static_fields })
    }

    /// What it may call.
    #[must_use]
    pub fn endpoints(&self) -> &[Rc<Endpoint>] {
        &self.endpoints
    }

    /// The fields of a request of our own: no caller has a part in it.
    #[must_use]
    pub fn own_fields(&self, is_json: bool) -> Headers {
        fields::own_fields(&self.static_fields, is_json)
    }

    /// Decides where `request` goes and with which fields. Nothing of the request is held afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`]: it is for none of the profile's endpoints.
    pub fn prepare(&self, request: &TunnelRequest) -> Result<Prepared, Failed> {
        let endpoint = choice::choose(&self.endpoints, request)
            .map_err(|error| Failed::error(ErrorKind::InvalidRequest, error))?
            .clone();
        let auth = request.provider_auth.as_ref();
        let fields = fields::request_fields(&request.headers, &self.static_fields, auth);
        let credential = auth.map_or(self.credential, |auth| credentials::of_caller(self.credential, auth));
        Ok(Prepared { endpoint, fields, credential })
    }
}
