<?php

// The same with PSR-7 messages between.

declare(strict_types=1);

require __DIR__ . '/psr7.php';

Pronghorn\serve(psr7_handler());
