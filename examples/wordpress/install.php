<?php

// Waits for the database and installs the blog, once. Its administrator is `admin`, with the
// password in BLOG_PASSWORD, else `pronghorn`: this blog listens on this machine alone.

declare(strict_types=1);

mysqli_report(MYSQLI_REPORT_OFF);
for ($tries = 0; $tries < 100; $tries++) {
    $database = @mysqli_connect('localhost', 'root', '', '', 0, __DIR__ . '/database/socket');
    if ($database !== false) {
        break;
    }
    usleep(100_000);
}
if (!$database) {
    exit("The database does not answer: see database/log.\n");
}
mysqli_query($database, 'CREATE DATABASE IF NOT EXISTS wordpress CHARACTER SET utf8mb4');
mysqli_close($database);

define('WP_INSTALLING', true);
// The server that has the cache does not run yet.
$wp_filter['enable_loading_object_cache_dropin'][10][] = ['function' => '__return_false', 'accepted_args' => 0];
$_SERVER += ['HTTP_HOST' => '127.0.0.1', 'SERVER_PROTOCOL' => 'HTTP/1.1'];
/** Sends no mail from an example. */
function wp_mail(): bool
{
    return true;
}

require __DIR__ . '/site/wp-load.php';
if (!is_blog_installed()) {
    require ABSPATH . 'wp-admin/includes/upgrade.php';
    wp_install('Pronghorn', 'admin', 'admin@example.org', true, '', getenv('BLOG_PASSWORD') ?: 'pronghorn');
    update_option('permalink_structure', '/%year%/%postname%/');
    $wp_rewrite->init();
    $wp_rewrite->flush_rules(false);
}
