mod bodies;
mod heads;
mod round_trip;
