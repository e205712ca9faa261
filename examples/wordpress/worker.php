<?php

// Pages of the blog, from processes in which WordPress is loaded (preheat.yaml).

declare(strict_types=1);

// With Composer: require __DIR__ . '/site/vendor/autoload.php';
require __DIR__ . '/../../php/wordpress/autoload.php';
Pronghorn\WordPress\Preheat::serve(__DIR__ . '/site');
