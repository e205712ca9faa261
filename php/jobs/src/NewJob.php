<?php

declare(strict_types=1);

namespace Pronghorn\Jobs;

/** A job that is to be pushed. */
final class NewJob
{
    public readonly Options $options;

    /**
     * @param string $name which handler it is for
     * @param mixed $payload a string travels as it is, everything else as JSON
     */
    public function __construct(
        public readonly string $name,
        public readonly mixed $payload = '',
        ?Options $options = null,
    ) {
        $this->options = $options ?? new Options();
    }
}
