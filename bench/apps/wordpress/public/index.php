<?php

// The blog that `beside` has made, as any server shows it.

declare(strict_types=1);

require getenv('BENCH_SHARED') . '/wordpress/site/index.php';
