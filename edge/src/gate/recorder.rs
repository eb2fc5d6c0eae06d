//! What a request has been answered so far, for as long as it lives (SEG-5).
