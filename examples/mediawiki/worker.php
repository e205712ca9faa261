<?php

// Pages of the wiki, from processes in which MediaWiki is loaded (preheat.yaml).
//
// A fiber loads MediaWiki's code, settings and extensions up to the hook SetupAfterCache. There it
// waits, before a session or a user is looked for, and goes on with the one request of its process.

declare(strict_types=1);

use MediaWiki\MediaWikiServices;

require __DIR__ . '/../../php/worker/autoload.php';

const INDEX = __DIR__ . '/wiki/site/index.php';
// MediaWiki calls these: the first in place of loading LocalSettings.php, the second behind that.
const MW_CONFIG_CALLBACK = 'load_settings';
const MW_SETUP_CALLBACK = 'wait_behind_extensions';

/** PHP has been told of this script, and MediaWiki goes by its own. */
function name_script(): void
{
    $_SERVER['SCRIPT_FILENAME'] = INDEX;
    $_SERVER['SCRIPT_NAME'] = $_SERVER['PHP_SELF'] = '/index.php';
    $_SERVER['DOCUMENT_ROOT'] = dirname(INDEX);
}

/** What LocalSettings.php sets is global, as if it were loaded by no function. */
function load_settings(object $wgSettings): void
{
    $wgSettings->apply();
    foreach (array_keys($GLOBALS) as $key) {
        if ($key[0] !== '_') {
            global $$key;
        }
    }
    unset($key);
    require wfDetectLocalSettingsFile();
    foreach (get_defined_vars() as $key => $value) {
        $GLOBALS[$key] = $value;
    }
}

function wait_behind_extensions(object $wgSettings): void
{
    $wait = static function () use ($wgSettings): void {
        if (MediaWikiServices::getInstance()->peekService('DBLoadBalancerFactory') !== null) {
            throw new LogicException('The settings of MediaWiki or an extension ask for the database before a request'
                . " is there (as \$wgSharedDB does). hint: `mode: classic` for this wiki");
        }
        Fiber::suspend();
        begin_request();
        wfWebStartSetup($wgSettings);
    };
    // The first one of that hook.
    $GLOBALS['wgHooks']['SetupAfterCache'] = [$wait, ...$GLOBALS['wgHooks']['SetupAfterCache'] ?? []];
}

/** What MediaWiki has done by now for a request that was none. */
function begin_request(): void
{
    header('X-Content-Type-Options: nosniff');
    $headers = 'MediaWiki\Request\HeaderCallback';
    (class_exists($headers) ? $headers : 'MediaWiki\HeaderCallback')::register();
    $request = new ($GLOBALS['wgRequest']::class)();
    RequestContext::getMain()->setRequest($request);
    $GLOBALS['wgRequest'] = $request;
    if ($request->getCookie('UseDC', '') === 'master') {
        MediaWikiServices::getInstance()->getMainWANObjectCache()->useInterimHoldOffCaching(false);
    }
}

$loading = new Fiber(static function (): void {
    require INDEX;
});
name_script();
// The request that is none.
$_SERVER += ['REQUEST_METHOD' => 'GET', 'REQUEST_URI' => '/', 'REMOTE_ADDR' => '127.0.0.1'];
$loading->start();

Pronghorn\serve(static function () use ($loading): void {
    if (!$loading->isSuspended()) {
        throw new LogicException('This process has answered its one request. hint: `max_jobs: 1` in its pool');
    }
    name_script();
    $loading->resume();
});
