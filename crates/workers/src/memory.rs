//! Whether the workers of all pools fit into the memory of the server's control group. PHP's limit
//! is for each worker; the kernel's is for all of them, and it kills.

use pronghorn_config::Size;

/// The workers of a pool, and the memory that each may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryShare {
    /// At most.
    pub workers: usize,
    /// In bytes.
    pub each: u64,
}

/// Workers that may take more than there is.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMuchMemory {
    /// The one whose workers may take most.
    pub pool: String,
    /// Says it of that pool.
    pub message: String,
    pub hint: String,
}

impl MemoryShare {
    fn all(self) -> u64 {
        self.each.saturating_mul(self.workers as u64)
    }
}

impl TooMuchMemory {
    /// None where all fit in `allowed` bytes.
    pub fn find<'a>(
        pools: impl IntoIterator<Item = (&'a str, MemoryShare)>,
        allowed: u64,
    ) -> Option<Self> {
        let pools: Vec<_> = pools.into_iter().collect();
        let wanted = pools.iter().map(|(_, share)| share.all());
        let wanted = wanted.fold(0, u64::saturating_add);
        let (pool, share) = *pools.iter().max_by_key(|(_, share)| share.all())?;
        if wanted <= allowed {
            return None;
        }
        let left = allowed.saturating_sub(wanted - share.all());
        let fit = (left / share.each.max(1)).max(1);
        let fewer = if fit < share.workers as u64 {
            format!("write `num_workers: {fit}` or a smaller `ini: {{memory_limit: …}}`")
        } else {
            "write a smaller `ini: {memory_limit: …}`".to_owned()
        };
        let shown = |bytes: u64| Size::megabytes(bytes >> 20);
        Some(Self {
            pool: pool.to_owned(),
            message: format!(
                "has up to {} workers, each of which may take {}: with all pools that is {}, and the \
                 server's control group allows {}",
                share.workers,
                shown(share.each),
                shown(wanted),
                shown(allowed)
            ),
            hint: format!(
                "{fewer}, or give the container or unit more memory: the kernel kills a process of a \
                 group that takes more than its `memory.max`"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn find(pools: &[(&'static str, usize, u64)], allowed: u64) -> Option<TooMuchMemory> {
        let shares = pools.iter().map(|&(pool, workers, each)| {
            let each = each * MB;
            (pool, MemoryShare { workers, each })
        });
        TooMuchMemory::find(shares, allowed * MB)
    }

    #[test]
    fn nothing_is_said_of_workers_that_fit() {
        assert_eq!(find(&[("default", 4, 128), ("jobs", 1, 64)], 576), None);
        assert_eq!(find(&[], 1), None);
    }

    #[test]
    fn the_largest_pool_is_told_how_many_workers_would_fit() {
        let found = find(&[("jobs", 1, 256), ("default", 8, 128)], 768);
        let found = found.expect("it is too much");
        assert_eq!(found.pool, "default");
        assert_eq!(
            found.message,
            "has up to 8 workers, each of which may take 128MB: with all pools that is 1280MB, and \
             the server's control group allows 768MB"
        );
        let fewer = found.hint.starts_with("write `num_workers: 4` or");
        assert!(fewer, "{}", found.hint);
        let one = find(&[("default", 1, 512)], 256).expect("it is too much");
        assert!(one.hint.starts_with("write a smaller"), "{}", one.hint);
    }
}
