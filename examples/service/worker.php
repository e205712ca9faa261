<?php

declare(strict_types=1);

// In an application of one's own: require 'vendor/autoload.php';
require __DIR__ . '/../../php/worker/autoload.php';

(new Pronghorn\Worker())
    ->onRaw(static fn (string $text): string => strtoupper($text))
    ->run();
