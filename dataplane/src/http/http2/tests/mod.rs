mod exchanges;
mod floods;
mod harness;
mod protocol;
mod raw;
mod secure;
