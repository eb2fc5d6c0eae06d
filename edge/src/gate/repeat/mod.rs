//! Output that goes round in circles (SEG-4).
