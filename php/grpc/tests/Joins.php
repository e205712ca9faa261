<?php

declare(strict_types=1);

namespace Pronghorn\Grpc\Tests;

use Pronghorn\Grpc\Receives;

/** The interface of a service, which tells what the client streams. */
interface Joins
{
    public const NAME = 'a.B';

    public function join(#[Receives(\stdClass::class)] iterable $in): void;
}
