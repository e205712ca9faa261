<?php

// Written for php-fpm: a session, a form, a redirect, exit().
session_start();

if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    $_SESSION['name'] = (string) ($_POST['name'] ?? '');
    header("Location: {$_SERVER['SCRIPT_NAME']}");
    exit;
}

$name = htmlspecialchars($_SESSION['name'] ?? 'stranger');
?>
<!doctype html>
<title>Admin</title>
<p>Hello, <?= $name ?>. This page is made anew for each request.
<form method="post"><input name="name"><button>That's me</button></form>
