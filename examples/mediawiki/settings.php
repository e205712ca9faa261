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
// Its jobs are run by the schedule, and not behind pages.
$wgJobRunRate = 0;
// A storage of the server, which all workers share. Sessions outlive the server.
$wgAutoloadClasses['PronghornCache'] = __DIR__ . '/cache.php';
$wgObjectCaches['pronghorn'] = ['class' => 'PronghornCache', 'storage' => 'mediawiki'];
$wgMainCacheType = 'pronghorn';
$wgSessionCacheType = CACHE_DB;
