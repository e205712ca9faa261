<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

/**
 * An event: with `spawn: fork` workers are forked from this process now, which has booted the
 * application. Listeners close what processes can't share; connections to databases and to Redis
 * are closed by then.
 */
final class BeforeFork
{
}
