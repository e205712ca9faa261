<?php

// The blog that `beside` has made, from processes in which WordPress is loaded.

declare(strict_types=1);

require __DIR__ . '/../../../php/wordpress/autoload.php';
Pronghorn\WordPress\Preheat::serve(getenv('BENCH_SHARED') . '/wordpress/site');
