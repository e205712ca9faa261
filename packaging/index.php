<?php

// The page of a fresh installation.

declare(strict_types=1);

?>
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Pronghorn serves PHP</title>
<h1>Pronghorn serves PHP <?= PHP_VERSION ?></h1>
<p>Name your application's root in <code>/etc/pronghorn/pronghorn.yaml</code>, then type
<code>systemctl reload pronghorn</code>.</p>
</html>
