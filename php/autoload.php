<?php

/**
 * Loads all packages of Pronghorn without Composer: `require '…/php/autoload.php';`
 */

declare(strict_types=1);

require_once __DIR__ . '/worker/autoload.php';
require_once __DIR__ . '/cache/autoload.php';
require_once __DIR__ . '/grpc/autoload.php';
require_once __DIR__ . '/jobs/autoload.php';
require_once __DIR__ . '/laravel/autoload.php';
require_once __DIR__ . '/symfony/autoload.php';
require_once __DIR__ . '/wordpress/autoload.php';
