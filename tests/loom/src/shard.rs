//! In the place of a shard's wake: `dataplane::shard::ear` over a counter instead of a socket pair.

/// In the place of `dataplane::shard::ear`.
pub mod ear {
    use std::{
        future::poll_fn,
        io,
        sync::Arc,
        task::{Poll, Waker},
    };

    use loom::sync::Mutex;

    /// What lies in the socket, and who waits for it. The kernel's own lock stands around both.
    #[derive(Default)]
    struct Socket {
        bytes: usize,
        reader: Option<Waker>,
    }

    /// The end that any thread rings.
    pub struct Ringer(Arc<Mutex<Socket>>);

    /// The shard's end, before the shard has started.
    pub struct EarSeed(Arc<Mutex<Socket>>);

    /// The shard's end.
    pub struct Ear(Arc<Mutex<Socket>>);

    /// Both ends.
    ///
    /// # Errors
    /// None here.
    pub fn pair() -> io::Result<(Ringer, EarSeed)> {
        let socket = Arc::new(Mutex::new(Socket::default()));
        Ok((Ringer(Arc::clone(&socket)), EarSeed(socket)))
    }

    impl Ringer {
        /// Puts a byte in.
        pub fn ring(&self) {
            let reader = {
                let mut socket = self.0.lock().unwrap();
                socket.bytes += 1;
                socket.reader.take()
            };
            if let Some(reader) = reader {
                reader.wake();
            }
        }
    }

    impl EarSeed {
        /// Opens the shard's end.
        ///
        /// # Errors
        /// None here.
        pub fn open(self) -> io::Result<Ear> {
            Ok(Ear(self.0))
        }
    }

    impl Ear {
        /// Until there is a byte; takes all.
        pub async fn listen(&mut self) {
            poll_fn(|cx| {
                let mut socket = self.0.lock().unwrap();
                if std::mem::take(&mut socket.bytes) > 0 {
                    return Poll::Ready(());
                }
                socket.reader = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
        }
    }
}
