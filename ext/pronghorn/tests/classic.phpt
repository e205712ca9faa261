--TEST--
A process that the server starts for scripts runs each as a whole request
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/classic.inc';

use Pronghorn\Tests\Support\Codec;

$scripts = new Scripts(['precision' => 3, 'expose_php' => 0, 'display_errors' => 0, 'log_errors' => 1], ['SEEN' => 'yes', 'UNSEEN' => 'no']);
$said = $scripts->announcement();
echo json_encode([$said['codec'], $said['kinds'], $said['ring'], $said['pid'] > 1]), "\n";

$all = script('
    define("ONCE", 1);
    header("X-A: 1"); header("X-A: 2", false); header("Status: 201");
    $seen = [PHP_SAPI, php_sapi_name(), $_GET, $_POST, $_COOKIE, file_get_contents("php://input"), getenv("SEEN"), getenv("UNSEEN"),
        getenv("PRONGHORN_PIPES"), ini_get("precision"), ini_get("html_errors"), ini_get("max_execution_time"), ini_get("output_buffering"),
        ini_get("register_argc_argv"), ini_get("implicit_flush"), isset($_SERVER["argv"]), $_SERVER["PHP_SELF"],
        extension_loaded("pcntl"), function_exists("cli_set_process_title"), strlen($_SERVER["LONG"])];
    ini_set("precision", "9");
    echo json_encode($seen, 64);');
$variables = ['REQUEST_METHOD' => 'POST', 'QUERY_STRING' => 'a[]=1', 'CONTENT_TYPE' => 'application/x-www-form-urlencoded',
    'CONTENT_LENGTH' => '3', 'HTTP_COOKIE' => 'c=d', 'PATH_INFO' => '/more', 'SCRIPT_NAME' => '/all.php', 'LONG' => str_repeat('x', 70_000)];
foreach ([7, 8] as $number) {
    echo $scripts->run($all, $variables, 'b=2', $number);
}
echo $scripts->run(script('fastcgi_finish_request();'), number: 9), $scripts->answer();
echo $scripts->run(script('echo "a"; flush(); echo "b";'), number: 10);
echo preg_replace('/Exception in.*on line \d+/s', 'Exception', $scripts->run(script('throw new Exception();'), number: 11));
echo $scripts->run('/does/not/exist.php', number: 12);
echo $scripts->run(script('echo strlen(file_get_contents("php://input"));'), ['REQUEST_METHOD' => 'PUT', 'CONTENT_LENGTH' => '600000'],
    str_repeat('y', 600_000), 13) ?: 'nothing';
echo $scripts->run(script('echo file_get_contents("php://input");'), ['REQUEST_METHOD' => 'PUT', 'CONTENT_LENGTH' => '2'],
    script('in a file'), 14, 0x01);
$scripts->box->put(Codec::frame(pack('CCvV', 0x11, 0, 0, 15)));
echo $scripts->answer();
$scripts->box->put(Codec::control('{"stop":true}'));
echo $scripts->end();
?>
--EXPECT--
["native",["script"],true,true]
reply 7 201 [["X-A","1"],["X-A","2"],["Content-type","text/html; charset=UTF-8"]] ["fpm-fcgi","fpm-fcgi",{"a":["1"]},{"b":"2"},{"c":"d"},"b=2","yes",false,false,"3","1","30","0","0","0",false,"/all.php/more",false,false,70000]
reply 8 201 [["X-A","1"],["X-A","2"],["Content-type","text/html; charset=UTF-8"]] ["fpm-fcgi","fpm-fcgi",{"a":["1"]},{"b":"2"},{"c":"d"},"b=2","yes",false,false,"3","1","30","0","0","0",false,"/all.php/more",false,false,70000]
reply 9 flags 2 200 [["Content-type","text/html; charset=UTF-8"]]
free 9
reply 10 200 [["Content-type","text/html; charset=UTF-8"]] a …
chunk 10 b
message 11 flags 129 PHP Fatal error:  Uncaught Exception
reply 11 500 [["Content-type","text/html; charset=UTF-8"]]
reply 12 404 [["Content-type","text/html; charset=UTF-8"]] File not found.

reply 13 200 [["Content-type","text/html; charset=UTF-8"]] 600000
reply 14 200 [["Content-type","text/html; charset=UTF-8"]] <?php in a file
pong 15
0
