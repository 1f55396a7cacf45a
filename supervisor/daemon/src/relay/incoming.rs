//! Reading from a plugin or a caller, and giving memory back when it is quiet.

use std::time::Duration;

use plugind_protocol::frame::Decoder;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

use super::Outgoing;

/// A side that was quiet for this long gives back what a large frame or a burst needed.
const QUIET: Duration = Duration::from_secs(1);

/// Reads into the decoder's room; 0 at the end. `out` is the way to the same side.
pub(crate) async fn read(
    from: &mut (impl AsyncRead + Unpin),
    decoder: &mut Decoder,
    out: &Outgoing,
) -> usize {
    if decoder.is_roomy() || out.is_roomy() {
        if let Ok(read) = timeout(QUIET, from.read(decoder.space())).await {
            return read.unwrap_or(0);
        }
        decoder.rest();
        out.rest();
    }
    from.read(decoder.space()).await.unwrap_or(0)
}
