<?php

declare(strict_types=1);

// The settings of the blog. With Composer: require __DIR__ . '/vendor/autoload.php';
require_once __DIR__ . '/../../../php/wordpress/autoload.php';

define('DB_NAME', 'wordpress');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:' . dirname(__DIR__) . '/database/socket');
define('DB_CHARSET', 'utf8mb4');
$table_prefix = 'wp_';

// One address for all: WordPress is loaded before it knows of any request.
define('WP_HOME', getenv('WP_HOME') ?: 'http://127.0.0.1:8080');
define('WP_SITEURL', WP_HOME);

// This one asks nobody for news and updates.
define('WP_HTTP_BLOCK_EXTERNAL', true);

// Each blog has its own, from https://api.wordpress.org/secret-key/1.1/salt/. Without them
// WordPress makes some and keeps them in its database.
// define('AUTH_KEY', '…'); …

defined('ABSPATH') || define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
