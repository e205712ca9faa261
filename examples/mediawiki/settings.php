<?php

declare(strict_types=1);

// What the example sets beside what MediaWiki's installer has written; LocalSettings.php loads it.
$wgServer = getenv('WIKI_SERVER');
$wgArticlePath = '/wiki/$1';
$wgUsePathInfo = true;
$wgEnableUploads = true;
$wgUploadDirectory = __DIR__ . '/wiki/site/images';
$wgUploadPath = '/images';
$wgUseImageMagick = false;
$wgCacheDirectory = __DIR__ . '/wiki/data';
# APCu where it is: the workers of a pool share it.
$wgMainCacheType = function_exists('apcu_fetch') ? CACHE_ACCEL : CACHE_NONE;
