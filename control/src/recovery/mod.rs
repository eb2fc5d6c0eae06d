//! The liveness owner of one request: what becomes of it when an attempt fails (REC-1). A machine beside the one of the control thread: it lives where the request does.
